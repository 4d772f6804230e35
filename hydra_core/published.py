"""The figures that the paper reports (arXiv 2510.18358): the paper's, never measured here."""

HEADER = ("Setting", "Metric", "Hydra (circuits)", "Deep Ensembles", "Other")
ROWS = (
    ("ImageNet-1K, ViT-B/16", "Accuracy", "80.88", "82.19", ""),
    ("", "OOD AUROC", "86.29", "85.48", "Taylor single 84.38, CircAvg single 85.71, Hydra (Taylor) 85.36"),
    ("", "FPR95", "47.62", "46.93", ""),
    ("CIFAR-100", "AUROC / FPR95", "89.43 / 36.44", "86.08 / 38.67", ""),
    ("SST-2, BERT", "AUROC / FPR95", "77.60 / 55.06", "74.81 / 62.69", ""),
    (
        "ImageNet zero-shot, OpenCLIP",
        "AUROC / FPR95 / AUPR",
        "76.82 / 68.05 / 47.85",
        "–",
        "ViLU 75.38 / 71.59 / 43.81",
    ),
    ("Time over one network, BF16 on a GPU", "ratio", "1.07", "2.99", ""),
)
NOTE = (
    "In percent, except for the ratio of times. Source: Gabetni et al., arXiv 2510.18358 (ICLR 2026). Other models and "
    "data than the demos: compare the direction, not the numbers."
)
