"""What each number means, in sentences that stand beside it wherever it leaves the program."""

CONVENTIONS = (
    "Probabilities of an ensemble are the mean of its members' softmax. Rows with a non-finite logit are left out of "
    "every metric, and counted.",
    "ECE is the top-label calibration error over equal-width bins [lower, upper), the last one closed; an empty bin "
    "counts nothing. Adaptive ECE (ACE) has bins of equal mass; MCE is the largest gap of the equal-width bins. All "
    "are 0 to 1.",
    "NLL is in nats. Brier is summed over the classes, 0 to 2.",
    "Mutual information is H(mean p) - mean H(p) in nats; disagreement is the share of samples on which a pair of "
    "members differs in its top class, mean over the pairs. One member alone has neither.",
    "OOD detection: the score is an uncertainty, higher = more out of distribution, and OOD is the positive class. "
    "AUPR is average precision, once with OOD and once with ID as the positive class.",
    "FPR95 is the false positive rate at the largest threshold whose true positive rate is at least 95 %, ties kept "
    "whole. With OOD positive it is the paper's; with ID positive, OpenOOD's.",
    "Layers and heads are counted from 0 by the original backbone, also after pruning.",
    "A value that is undefined is shown as a dash, with the reason.",
)
