"""How much the members of an ensemble differ. Shapes: member probabilities (M, N, C).

Mutual information: Houlsby et al., "Bayesian Active Learning for Classification and Preference Learning",
arXiv 1112.5745 (2011).
"""

from itertools import combinations
from typing import Any

import numpy as np

from hydra_core.errors import HydraError
from hydra_core.metrics._arrays import Floats, member_mean, to_labels, to_members


def entropy(probabilities: Floats) -> Floats:
    """Entropy over the last axis in nats, with 0 ln 0 = 0; NaN stays NaN."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    result: Floats = -(probabilities * logs).sum(axis=-1) + 0.0
    return result


def mutual_information(member_probabilities: Any) -> Floats:
    """Per sample, H(mean p) - mean H(p) in nats: between 0 (members agree) and ln M.

    Computed as the mean Kullback-Leibler divergence of the members from their mean, which is the same number
    and exactly 0 for identical members.

    Args:
        member_probabilities: (M, N, C) with M >= 2.

    Returns:
        (N,) float64; NaN in rows where a member has a non-finite value.

    Raises:
        HydraError: another shape, fewer than two members, or values that are no probabilities.

    Example:
        >>> mutual_information([[[0.9, 0.1]], [[0.1, 0.9]]]).round(6)
        array([0.368064])
    """
    values, finite = to_members(member_probabilities, 2, "mutual information")
    result = np.full(values.shape[1], np.nan)
    members = values[:, finite]  # (M, n, C)
    divergence = _kl(members, member_mean(members)[None])  # (M, n)
    result[finite] = np.maximum(divergence.mean(axis=0), 0.0)
    return result


def expected_pairwise_kl(member_probabilities: Any) -> Floats:
    """Per sample, the mean over ordered pairs of different members of KL(p_i || p_j) in nats; 0 where they agree.

    Malinin, Mlodozeniec and Gales, "Ensemble Distribution Distillation", arXiv 1905.00076 (2020). A probability of 0 in
    p_j counts as the smallest normal float64.

    Args:
        member_probabilities: (M, N, C) with M >= 2.

    Returns:
        (N,) float64; NaN in rows where a member has a non-finite value.

    Raises:
        HydraError: as for :func:`mutual_information`.
    """
    values, finite = to_members(member_probabilities, 2, "expected pairwise KL")
    result = np.full(values.shape[1], np.nan)
    members = values[:, finite]  # (M, n, C)
    total = sum(_kl(one[None], members).sum(axis=0) for one in members)  # a member with itself: exactly 0
    result[finite] = np.maximum(total / (len(members) * (len(members) - 1)), 0.0)
    return result


def vote_disagreement(member_probabilities: Any) -> Floats:
    """Per sample, the share of pairs of members whose top classes differ; 0 to 1.

    Args, returns and errors: as for :func:`expected_pairwise_kl`.
    """
    values, finite = to_members(member_probabilities, 2, "vote disagreement")
    result = np.full(values.shape[1], np.nan)
    top = values[:, finite].argmax(axis=2)  # (M, n)
    pairs = [top[i] != top[j] for i, j in combinations(range(len(top)), 2)]
    result[finite] = np.mean(pairs, axis=0)
    return result


def pairwise_disagreement(member_probabilities: Any) -> Floats:
    """(M, M): share of samples on which members i and j differ in their top class; 0 on the diagonal.

    Args:
        member_probabilities: (M, N, C) with M >= 2; rows with a non-finite value are left out.

    Raises:
        HydraError: as for :func:`mutual_information`, or no finite row.
    """
    top = _finite_members(member_probabilities, "disagreement").argmax(axis=2)  # (M, n)
    differs: Floats = (top[:, None] != top[None]).mean(axis=2)
    return differs


def disagreement(member_probabilities: Any) -> float:
    """Share of samples on which a pair of members differs in its top class, mean over pairs; 0 to 1.

    Args:
        member_probabilities: (M, N, C) with M >= 2; rows with a non-finite value are left out.

    Raises:
        HydraError: as for :func:`pairwise_disagreement`.
    """
    table = pairwise_disagreement(member_probabilities)
    return float(np.mean([table[i, j] for i, j in combinations(range(len(table)), 2)]))


def pairwise_kl(member_probabilities: Any) -> Floats:
    """(M, M): mean over samples of KL(p_i || p_j) in nats; row i is the reference, 0 on the diagonal.

    Not symmetric. A probability of 0 in p_j counts as the smallest normal float64.

    Args:
        member_probabilities: (M, N, C) with M >= 2; rows with a non-finite value are left out.

    Raises:
        HydraError: as for :func:`pairwise_disagreement`.
    """
    members = _finite_members(member_probabilities, "pairwise KL")
    return np.stack([np.maximum(_kl(one[None], members).mean(axis=1), 0.0) for one in members])


def error_correlation(member_probabilities: Any, labels: Any) -> Floats:
    """(M, M): Pearson correlation over samples of two members' errors (1 where the top class is wrong, else 0).

    0: they err independently; 1: on the same samples, where an average cannot help; the diagonal is 1. NaN in the rows
    and columns of a member that is always right or always wrong: it has no variance, so no correlation is defined.
    See Tumer & Ghosh, "Error correlation and error reduction in ensemble classifiers", Connection Science 8 (1996).

    Args:
        member_probabilities: (M, N, C) with M >= 2; rows with a non-finite value are left out.
        labels: (N,) class indices from 0.

    Raises:
        HydraError: as for :func:`pairwise_disagreement`; labels out of range.
    """
    values, finite = to_members(member_probabilities, 2, "error correlation")
    wanted = to_labels(labels, values.shape[1], values.shape[2])
    if not finite.any():
        raise HydraError(f"all {len(finite)} samples hold a non-finite value: error correlation has nothing to measure")
    wrong = (values[:, finite].argmax(axis=2) != wanted[finite]).astype(np.float64)  # (M, n)
    centred = wrong - wrong.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1))
    spread[spread == 0] = np.nan
    table: Floats = (centred @ centred.T) / wrong.shape[1] / np.outer(spread, spread)
    return np.clip(table, -1.0, 1.0)


def _finite_members(member_probabilities: Any, what: str) -> Floats:
    values, finite = to_members(member_probabilities, 2, what)
    if not finite.any():
        raise HydraError(f"all {len(finite)} samples hold a non-finite value: {what} has nothing to measure")
    return values[:, finite]


def _kl(p: Floats, q: Floats) -> Floats:
    """KL(p || q) over the last axis in nats; terms with p = 0 are 0."""
    tiny = np.finfo(np.float64).tiny
    # log of a quotient would lose q below tiny; a difference of logs is exactly 0 where p equals q
    logs = np.log(np.maximum(p, tiny)) - np.log(np.maximum(q, tiny))
    result: Floats = np.where(p > 0, p * logs, 0.0).sum(axis=-1)
    return result
