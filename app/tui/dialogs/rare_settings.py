"""What the settings of rarely used samplers do, for people, and the heading of their group."""

from __future__ import annotations

RARE = "Samplers that few use"
RARE_ABOUT = {
    "dry_multiplier": "Makes tokens less likely that would continue a repetition, the more the longer it is. 0 is off, "
    "usually 0.8.",
    "dry_base": "By what factor that penalty grows with each token of the repetition. From 1 to 100.",
    "dry_allowed_length": "How many tokens may be repeated before that penalty begins. A whole number.",
    "dry_penalty_last_n": "How many tokens back repetitions are sought. A whole number; -1 is the whole chat, 0 "
    "is off.",
    "dry_sequence_breakers": "Texts across which no repetition is sought, with spaces between; \\n is the end of a "
    "line, \\s a space.",
    "xtc_probability": "How often the likeliest tokens are left out, so that a less usual one comes. From 0 (off) to "
    "1, usually 0.5.",
    "xtc_threshold": "Of the tokens with at least this chance only the last is kept then. From 0 to 1; above 0.5 is "
    "off.",
    "top_n_sigma": "Leaves out tokens that score this many standard deviations below the best. 0 or less is off, "
    "usually 1.",
    "typical_p": "Keeps the tokens that are about as surprising as is to be expected, up to this share. Above 0, at "
    "most 1 (off).",
    "dynatemp_range": "How far the temperature may move to both sides: down where the model is sure, up where it is "
    "not. 0 is off.",
    "dynatemp_exponent": "How the temperature follows the model's doubt: 1 evenly, above 1 later. From 0 to 100.",
    "mirostat": "2 keeps the replies about as surprising as mirostat_tau says, in place of top_k, top_p and min_p. 0 "
    "is off.",
    "mirostat_tau": "How surprising tokens are to be on average, in bits. From 0 to 100, usually 5.",
    "mirostat_eta": "How fast mirostat corrects what was more or less surprising. From 0 to 1.",
    "min_tokens": "How many tokens a reply has at least. A whole number; 0 is off.",
    "samplers": "The order in which samplers are applied, such as top_k;min_p;temperature; those without a place are "
    "off. None is the usual order.",
}
