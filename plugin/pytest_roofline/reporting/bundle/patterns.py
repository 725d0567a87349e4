"""What gives away where a run was made, as patterns by category; the group `it`, or all that matched, is replaced."""

import ipaddress
import re

# By category, the word that placeholders begin with. The order is that of precedence where two overlap.
CATEGORIES = {
    "secrets": "secret",
    "urls": "url",
    "emails": "email",
    "values": "value",
    "jobs": "job",
    "paths": "path",
    "devices": "gpu",
    "hosts": "host",
    "users": "user",
    "addresses": "address",
}
# Variables whose values explain a number, and are read by those who look into one.
TELLING = ("NCCL", "RCCL", "CUDA", "HIP", "HSA", "ROCM", "ROCR", "GPU", "OMP", "MKL", "KMP", "TORCH", "TORCHINDUCTOR",
           "PYTORCH", "TRITON", "GLOO", "UCX", "ROOFLINE", "OMPI_MCA")  # fmt: skip
# Words that are somebody's name now and then, and mean something else everywhere: not looked for in sentences.
_COMMON_WORDS = (
    "a admin all baseline build builder ci cluster compute cpu cuda data default dev device docker event events gloo "
    "gpu graph home host hosts job kernel linux local localhost login main master memory mpi nccl node nodes none "
    "null opt pytest python pytorch rank ranks rocm roofline root run runner runs server shared slurm srun system "
    "test tests time torch triton ubuntu unknown user users warm worker work"
)
COMMON = frozenset(_COMMON_WORDS.split())
# Files that every machine with Linux has.
_SYSTEM = re.compile(r"/(?:dev|proc|sys)/[\w./-]*")
# How addresses of a site or of a link begin, and those of the Internet.
_NETWORK = re.compile(r"(?i)f[cde][0-9a-f]{2}:|[23][0-9a-f]{3}:")
# Addresses that every machine has.
_EVERYWHERE = {"127.0.0.1", "0.0.0.0", "::", "::1"}

_WORDS = r"token|passw(?:or)?d|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
_VALUE = r"(?P<it>\"[^\"]*\"|'[^']*'|[^\s\"',;&]+)"
_END = r"[^\s\"'`<>|,;()\[\]{}*?:]"
_HEX = r"[0-9a-fA-F]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_TOP_LEVEL = (
    "com|org|net|edu|gov|mil|int|io|ai|cloud|dev|example|invalid|local|localdomain|internal|intranet|lan|corp|cluster|"
    "private|arpa|svc|de|uk|fr|ch|at|jp|cn|kr|tw|eu|nl|se|fi|ca|au"
)

_RAW: dict[str, tuple[str, ...]] = {
    "secrets": (
        rf"(?i)(?:{_WORDS}|authorization|cookie)[\"']?\s*[:=]\s*(?:bearer\s+|basic\s+)?{_VALUE}",
        rf"(?i)(?<!\w)--?[\w-]{{0,40}}(?:{_WORDS})\s+(?!-){_VALUE}",
        r"(?i)\b(?:bearer|basic)\s+(?P<it>[\w.+/=~-]{8,})",
        r"(?<=://)(?P<it>[^\s/@]+)(?=@)",
        r"\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{10,}|hf_[A-Za-z0-9]{10,}|sk-[\w-]{16,}"
        r"|AKIA[0-9A-Z]{12,}|xox[abpr]-[\w-]{10,}|eyJ[\w-]+\.[\w-]+\.[\w-]+)",
        rf"(?<![\w-]){_HEX}{{40}}(?![\w-])",
    ),
    "urls": (r"[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s\"'`<>)\]}]+",),
    "emails": (
        r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
        r"(?<![\w.])[\w.-]{1,64}@[\w.-]+(?=:)",
        r"\b(?:ssh|scp|rsync)\s+(?:\S+\s+){0,8}?(?P<it>[\w.-]+@[\w.-]+)",
    ),
    "values": (
        rf"\b(?!(?:{'|'.join(TELLING)})_)(?:[A-Z][A-Z0-9]*_[A-Z0-9_]*|HOME|HOSTNAME|LOGNAME|MAIL|PATH|PWD|SHELL|USER)="
        r"(?P<it>\"[^\"]*\"|'[^']*'|\S+)",
    ),
    "jobs": (
        r"(?i)\b(?:(?:slurm|pbs|lsf|sge|flux|cluster)[_ -]?job(?:[_ -]?id)?|job[_ -]?id)[\"']?\s*[:=#]?\s*[\"']?"
        r"(?P<it>\d[\w.\[\]-]*)",
        # A job without more is also what is timed from start to end: shorter numbers are its seconds.
        r"(?i)\bjob[\"']?\s*[:=#]?\s*[\"']?(?P<it>\d{4}[\w\[\]-]*)",
        rf"(?i)\b(?:container|docker)(?:[_ -]?id)?[\"']?\s*[-:=/ ]\s*(?P<it>{_HEX}{{12,64}})",
        rf"(?<![\w-]){_HEX}{{64}}(?![\w-])",
        r"(?<![\w-])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{12}(?![\w-])",
        r"(?<![\w-])[a-z0-9]+(?:-[a-z0-9]+)*-[0-9a-f]{8,10}-[a-z0-9]{5}(?![\w-])",
    ),
    "paths": (
        r"(?P<q>[\"'`])(?P<it>(?:/[\w.~@-]|~[\w.-]*/|[A-Za-z]:[\\/]|\\\\)[^\"'`\n]*)(?P=q)",
        rf"(?<![\w/.%)\]~+*-])/(?=[\w.~@-]){_END}{{2,}}(?<!\.)",
        rf"(?<=-[A-Za-z])/(?=[\w.~@-]){_END}{{2,}}(?<!\.)",
        rf"(?<![\w/])~[\w.-]*/{_END}*",
        r"(?<![A-Za-z])[A-Za-z]:[\\/][^\s\"'`<>|]+",
        r"(?<![\\\w])\\\\[\w.$-]+[^\s\"'`<>|]*",
    ),
    "devices": (
        rf"(?<![\w-])(?:MIG-GPU-|MIG-|GPU-)?{_UUID}(?:/\d+/\d+)?",
        r"(?i)\b(?:serial(?:[ _-]?(?:number|no\.?|nr\.?))?|s/n|unique[_ ]?id)[\"']?\s*[:=#]?\s*[\"']?"
        r"(?P<it>[A-Za-z0-9-]*\d[A-Za-z0-9-]{3,})",
    ),
    "hosts": (
        rf"(?<![\w.@/-])(?:[A-Za-z0-9-]+\.)+(?:{_TOP_LEVEL})(?![\w-])",
        r"(?<!\w)(?:--roofline-address|--hosts?|-H|--nodelist|-w|--master[_-]addr|--rdzv[_-]endpoint)[= ]"
        r"(?P<it>[^\s'\"]+)",
        r"\brank \d+ on (?P<it>(?!localhost\b)\w[\w.-]*\w)",
    ),
    "users": (
        r"(?i)\b(?:user(?:name)?|login)\s*[:=]\s*[\"']?(?P<it>[\w.-]+)",
        r"\b[ug]id=\d+\((?P<it>[\w.-]+)\)",
    ),
    "addresses": (
        r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)",
        rf"(?<![\w:.])(?:{_HEX}{{0,4}}:){{2,7}}(?:{_HEX}{{1,4}}|(?:\d{{1,3}}\.){{3}}\d{{1,3}})?(?![\w:])",
        rf"(?<![\w:-])(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}(?![\w:-])",
    ),
}
PATTERNS = {category: tuple(re.compile(text) for text in texts) for category, texts in _RAW.items()}

# Options whose value is the next word of a command line.
SECRET_OPTION = re.compile(rf"(?i)--?[\w-]*(?:{_WORDS})")
_OWNERS = (
    re.compile(r"(?:^|[^\w.])/(?:home|Users|export/home)/(?P<it>[\w.-]+)"),
    re.compile(r"\\Users\\(?P<it>[\w.-]+)"),
    re.compile(r"(?<![\w/])~(?P<it>[\w.-]+)/"),
    # Not behind a colon, where any word may follow.
    re.compile(r"(?i)\b(?:user(?:name)?|login)=[\"']?(?P<it>[\w.-]+)"),
    re.compile(r"\b[ug]id=\d+\((?P<it>[\w.-]+)\)"),
)

_BY_OPTION = tuple(pattern for pattern in PATTERNS["hosts"] if "it" in pattern.groupindex)


def owners(text: str) -> set[str]:
    """Names of people that paths and the like give away, to be looked for everywhere else."""
    return {match["it"] for pattern in _OWNERS for match in pattern.finditer(text)}


def hosts_in(text: str) -> set[str]:
    """Names of machines that a text gives away by what stands before them; with a digit, or they might be words."""
    found = {match["it"] for pattern in _BY_OPTION for match in pattern.finditer(text)}
    return {name for name in found if re.fullmatch(r"(?=.*\d)[A-Za-z][\w.-]*", name)}


def is_private(path: str) -> bool:
    """Whether a path says more than that the machine runs Linux."""
    return _SYSTEM.fullmatch(path) is None


def is_address(text: str) -> bool:
    """Whether what looks like an address is one, and not one that every machine has; a MAC address is one too."""
    if text in _EVERYWHERE:
        return False
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return re.fullmatch(rf"(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}", text) is not None
    # Names of C++ may be of these letters too (c10::add), though not of three parts.
    return address.version == 4 or len(list(filter(None, text.split(":")))) > 2 or _NETWORK.match(text) is not None
