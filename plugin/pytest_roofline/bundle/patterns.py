"""What gives away where a run was made, as patterns by category; the group `it`, or all that matched, is replaced."""

import ipaddress
import re

from .credentials import CONTEXTS, FIELD, FORMS, HEX

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
           "PYTORCH", "TRITON", "GLOO", "UCX", "ROOFLINE", "OMPI_MCA", "I_MPI", "NVIDIA")  # fmt: skip
# Words that are somebody's name now and then, and mean something else everywhere: not looked for in sentences.
_COMMON_WORDS = (
    "a admin all any baseline bool build builder ci cluster compute cpu cuda data default dev device dict docker "
    "event events failed float gloo gpu graph home host hosts int job kernel linux list local localhost login main "
    "master me memory mpi nccl node nodes none null opt optional passed pytest python pytorch rank ranks rocm "
    "roofline root run runner runs server shared skipped slurm srun str system test tests the time torch triton true "
    "ubuntu unknown user users warm worker work"
)
COMMON = frozenset(_COMMON_WORDS.split())
# Files and folders that every machine with Linux, or with a toolkit of a vendor, has.
_SYSTEM = re.compile(
    r"/(?:dev|proc|sys)(?:/[\w./-]*)?|/(?:site|dist)-packages/?|/(?:var/)?tmp/?|/(?:bin|sbin|lib|lib64)(?:/[\w.+-]*)*"
    r"|/usr(?:/(?:local/)?(?:bin|sbin|lib|lib64|include|share)(?:/[\w.+-]*)*)?/?|/(?:usr/local|opt)/(?:cuda|rocm)[\w./-]*"
)
# An address of this machine that says nothing of it; what follows the port could.
_LOOPBACK = re.compile(
    r"[A-Za-z][\w+.-]*://(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\])(?::\d*)?/?[.,;:]?"
)
# How addresses of a site or of a link begin, and those of the Internet.
_NETWORK = re.compile(r"(?i)f[cde][0-9a-f]{2}:|[23][0-9a-f]{3}:")
# MAC addresses and the ids of InfiniBand's ports in their spellings; a word of zeros or ones is no id.
_HARDWARE = re.compile(
    r"(?!.*(?:0{8}|[fF]{8}))(?:(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}"
    r"|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}|0x[0-9a-f]{16}|[0-9A-F]{12})"
)
# Addresses that every machine has.
_EVERYWHERE = {"127.0.0.1", "127.0.1.1", "0.0.0.0", "::", "::1"}

_END = r"[^\s\"'`<>|,;()\[\]{}*?:]"
_UUID = rf"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}"
# What is a domain, and what is an attribute's name as often, and a domain only behind two names or one with a digit.
_TOP_LEVEL = "com|org|net|edu|gov|mil|io|ai|arpa|localdomain|intranet|lan|corp|de|uk|fr|ch|jp|cn|kr|tw|eu|nl|se|fi|au"
_WORDY = "at|ca|cloud|cluster|dev|example|int|internal|invalid|local|private|svc"
# A machine's name where nothing but a word before it says so: letters, then a digit, and no name of a device.
_MACHINE = (
    r"(?!(?i:(?:cuda|cpu|rank|mlx|hip|xpu|sm|fp|bf|u?int|float|python|torch|ipv|http|sha|utf)[_-]?\d|gpu\d(?!\d)))"
    r"[A-Za-z][A-Za-z-]{2,40}[\w.-]{0,40}\d(?:[\w-]{0,40}(?:\.[\w-]{1,40}){0,8}[\w-])?"
)
_NODES = rf"(?P<it>{_MACHINE}(?!\w)|[A-Za-z][\w-]{{2,40}}\[[\d,-]+\])"
# Where tools print a machine's name and nothing else, so that it needs no digit: NCCL and its tests, Open MPI, Slurm,
# torchrun, netrc.
_HOSTS_OF_TOOLS = (
    r"(?<![\w.-])(?P<it>[A-Za-z][\w.-]*):\d+:\d+ \[-?\d+\] ",
    r"(?<![\w.-])(?P<it>[A-Za-z][\w.-]*)(?:: Test \w+| pid \d+: Test) failure\b",
    r"\b[Pp]id[ \t]+\d+[ \t]+on[ \t]+(?P<it>[A-Za-z][\w.-]*)(?=[ \t]+device\b)",
    r"(?:^|[\s(])\[(?P<it>[A-Za-z][\w.-]*):\d{3,}\]",
    r"\b(?:peer|from|to|with)[ \t]+(?P<it>[A-Za-z][\w.-]*)<\d{4,5}>",
    r"\bsrun: error: (?P<it>[A-Za-z][\w.-]*): task",
    r"\bhost[ ]{2,}: (?P<it>[A-Za-z][\w.-]*)",
    r"(?m)^[ \t]*machine[ \t]+(?P<it>[A-Za-z][\w.-]*)(?=\s+(?:login|account|password)\b)",
)
# Behind a folder's name with a blank or an apostrophe, on to the last separator.
_ON = r"(?: [A-Z][\w.'-]{0,80}/" + _END + r"*|(?<=\w)'(?=\w{0,80}/)" + _END + r"*)*"
_WINDOWS = r"(?: (?:[\w.()&'-]{1,80} ){0,3}[\w.()&'-]{1,80}\\[^\s\"'`<>|]*)*"

_RAW: dict[str, tuple[str, ...]] = {
    "secrets": CONTEXTS,
    "urls": (r"[A-Za-z][A-Za-z0-9+.-]{0,15}://(?!%|\{)[^\s\"'`<>)\]}]+(?:\](?::\d+)?)?",),
    "emails": (
        r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
        r"(?<![\w.])[\w.-]{1,64}@[\w.-]+(?=:)",
        r"(?<![\w.\])])[a-z_][\w.-]{0,63}@(?!sm_|gfx)[a-z][a-z-]{2,40}[\w-]{0,40}\d[\w-]*",
        r"\b(?:ssh|scp|rsync)[ \t]+(?:\S+[ \t]+){0,8}?(?P<it>[\w.-]+@[\w.-]+)",
    ),
    "values": (
        rf"\b(?!(?:{'|'.join(TELLING)})_(?!HOSTID=|COMM_ID=))"
        r"(?:[A-Z][A-Z0-9]*_[A-Z0-9_]*|HOME|HOST|HOSTNAME|LOGNAME|MAIL|PATH|PWD|SHELL|USER)="
        rf"(?P<it>\"[^\"\n]*\"|'[^'\n]*'|{FIELD}\S+)",
    ),
    "jobs": (
        r"(?i)\b(?:(?:slurm|pbs|lsf|sge|flux|cluster)[_ -]?job(?:[_ -]?id)?|job[_ -]?id)[\"']?[ \t]*[:=#]?[ \t]*[\"']?"
        r"(?P<it>\d[\w.\[\]-]*)",
        # A job without more is also what is timed from start to end: shorter numbers are its seconds.
        r"(?i)\bjob[\"']?[ \t]*[:=#]?[ \t]*[\"']?(?P<it>\d{4}[\w\[\]-]*)",
        r"(?i)\bjob[ \t]+#?(?P<it>\d{3})(?=[ \t]+(?:on|at|is|was|has|in|failed|cancelled|ended|died|exited)\b)",
        r"\bSTEP[ =](?P<it>\d[\w.]*)",
        r"(?<![\w.])\d{3,}\.(?:batch|extern|interactive|pbs[\w.-]*|[a-z-]{0,40}server[\w.-]*)(?!\w)",
        r"(?<![\w-])i-(?:[0-9a-f]{17}|[0-9a-f]{8})(?![\w-])",
        r"\barn:aws[\w-]*:[^\s\"'`,;)]+",
        rf"(?i)(?<![\w.])(?:--)?(?:account|project)(?:[_-]?id)?=(?P<it>{FIELD}[\w-]+)",
        r"(?i)\b(?:gcp|google)[ \t]+project[ \t:=]+(?P<it>[\w-]+)",
        rf"(?i)\b(?:boot|machine)[_-]?id[\"']?[ \t:=]+(?P<it>{HEX}{{32}})(?!\w)",
        rf"(?i)\b(?:container|docker)(?:[_ -]?id)?[\"']?[ \t]*[-:=/ ][ \t]*(?P<it>{HEX}{{12,64}})",
        r"(?<![\w-])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{12}(?![\w-])",
        r"(?<![\w-])[a-z0-9]+(?:-[a-z0-9]+)*-[0-9a-f]{8,10}-[a-z0-9]{5}(?![\w-])",
    ),
    "paths": (
        r"(?P<q>[\"'`])(?P<it>(?:/[\w.~@-]|~[\w.-]*/|[A-Za-z]:\\|[A-Za-z]:/\w|\\\\\w)"
        r"(?:[^\"'`\n]|(?<=\w)'(?=\w))*)(?P=q)",
        rf"(?<![\w/.%)\]~+*-])/(?:home|Users)/[\w.-]+ [\w.'-]{{1,80}}/{_END}*(?<!\.)",
        rf"(?<![\w/.%)\]}}~+*-])(?<!\w`)(?!(?<=[<\\])/\w+(?:>|$))/(?=[\w.~@-]){_END}{{2,}}{_ON}(?<!\.)",
        rf"(?<=-[A-Za-z])/(?=[\w.~@-]){_END}{{2,}}{_ON}(?<!\.)",
        rf"(?<![\w/])~[\w.-]*/{_END}*{_ON}",
        rf"(?<![\w%?])(?:[A-Z]:[\\/]{{1,2}}[\w$.~-]|[a-z]:[\\/]{{1,2}}[\w$.~-]{{2}})[^\s\"'`<>|]*{_WINDOWS}",
        rf"(?<![\\\w])\\\\[\w.$-]{{2,}}\\[\w.$-]+[^\s\"'`<>|]*{_WINDOWS}",
    ),
    "devices": (
        rf"(?<![\w-])(?:MIG-GPU-|MIG-|GPU-)?{_UUID}(?:/\d+/\d+)?",
        r"(?i)\b(?:serial(?:[ _-]?(?:number|no\.?|nr\.?))?|s/n|unique[_ ]?id|\w{1,40}[_-]sn)"
        r"[\"']?[ \t]*[:=#]?[ \t]*[\"']?"
        r"(?P<it>[A-Za-z0-9-]{0,40}\d[A-Za-z0-9-]{3,})",
        r"\bSN[ \t:=#]+(?P<it>[A-Z0-9-]{0,40}\d[A-Z0-9-]{3,})",
    ),
    "hosts": (
        rf"(?<![\w.@/-])(?:[A-Za-z0-9-]+\.)+(?:{_TOP_LEVEL})(?![\w-])",
        rf"(?<![\w.@/-])(?:(?:[A-Za-z0-9-]+\.){{2,}}|(?=[A-Za-z-]*\d)[A-Za-z0-9-]+\.)(?:{_WORDY})(?![\w-])",
        r"(?<!\w)(?:--roofline-address|--hosts?|-H|--nodelist|-w|--master[_-]addr|--rdzv[_-]endpoint)[= ]"
        rf"(?P<it>{FIELD}[^\s'\"]+)",
        r"\brank \d+ on (?P<it>(?!localhost\b)\w[\w.-]*\w)",
        rf"\brank \d+ \({_NODES}\)",
        rf"(?i)\b(?:host|node|server)(?:name|list)?s?[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?{_NODES}",
        rf"(?:\bON[ \t]+|\bssh[ \t]+(?:-\S+[ \t]+(?:\d+[ \t]+)?){{0,4}}|\bsrun\)?:?[ \t]+){_NODES}",
        rf"(?<![\w\]])\[{_NODES}\]:\d",
        rf"(?<![\w.@/-])(?P<it>{_MACHINE})[ \t]+is[ \t]+(?:down|lost|dead|unreachable|not responding)\b",
        r"(?<![\w-])ip-(?:\d{1,3}-){3}\d{1,3}(?![\w-])",
        *_HOSTS_OF_TOOLS,
    ),
    "users": (
        r"(?i)\b(?:user(?:name)?|login)[ \t]*[:=][ \t]*[\"']?(?P<it>[\w.-]+)",
        r"\blogin[ \t]+(?P<it>[\w.-]+)(?=\s+(?:account|password)\b)",
        r"\b[ug]id[= ]\d+[ \t]?\((?P<it>[\w.-]+)\)",
        r"\b[Uu]ser[ \t]+[\"'](?P<it>[\w.-]+)[\"']",
        r"\b[Uu]ser[ \t]+(?P<it>[a-z][\w.-]*\d)(?![\w.-])",
    ),
    "addresses": (
        r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)",
        rf"(?<![\w:.])(?:{HEX}{{0,4}}:){{2,7}}(?:{HEX}{{1,4}}|(?:\d{{1,3}}\.){{3}}\d{{1,3}})?(?:%[\w.-]+)?(?![\w:])",
        rf"(?<![\w:-])(?:{HEX}{{2}}[:-]){{5}}{HEX}{{2}}(?![\w:-])",
        rf"(?<![\w:])(?:{HEX}{{4}}:){{3}}{HEX}{{4}}(?![\w:])",
        rf"(?<![\w.])(?:{HEX}{{4}}\.){{2}}{HEX}{{4}}(?![\w.])",
        r"(?<!\w)0x[0-9a-f]{16}(?!\w)",
        r"(?<![\w-])(?=\d*[A-F])[0-9A-F]{12}(?![\w-])",
    ),
}
PATTERNS = {category: tuple(re.compile(text) for text in texts) for category, texts in _RAW.items()}
PATTERNS["secrets"] += FORMS
# A placeholder of ours, which is no name any more.
PLACEHOLDER = re.compile(rf"\W*(?:{'|'.join(CATEGORIES.values())})-\d+\W*")

_OWNERS = (
    re.compile(r"(?:^|[^\w.])/(?:home|Users|export/home)/(?P<it>[\w.-]+)"),
    re.compile(r"[\\/]Users[\\/](?P<it>[\w.-]+(?: [\w.-]+(?=[\\/]))?)"),
    re.compile(r"(?:^|[^\w.])/home/(?P<it>[\w.-]+ [\w.-]+)(?=/)"),
    re.compile(r"(?<![\w/])~(?P<it>[\w.-]+)/"),
    # Not behind a colon, where any word may follow.
    re.compile(r"(?i)\b(?:user(?:name)?|login)=[\"']?(?P<it>[\w.-]+)"),
    re.compile(r"\b[ug]id[= ]\d+[ \t]?\((?P<it>[\w.-]+)\)"),
)

_BY_OPTION = tuple(pattern for pattern in PATTERNS["hosts"] if "it" in pattern.groupindex)
_BY_TOOL = tuple(map(re.compile, _HOSTS_OF_TOOLS))


def owners(text: str) -> set[str]:
    """Names of people that paths and the like give away, to be looked for everywhere else."""
    found = {match["it"] for pattern in _OWNERS for match in pattern.finditer(text)}
    return found | {word for name in found for word in name.split()}


def hosts_in(text: str) -> set[str]:
    """Names of machines that a text gives away by what stands before them; with a digit, or they might be words."""
    found = {match["it"] for pattern in _BY_OPTION for match in pattern.finditer(text)}
    certain = {match["it"] for pattern in _BY_TOOL for match in pattern.finditer(text)}
    return certain | {name for name in found if re.fullmatch(r"(?=.*\d)[A-Za-z][\w.-]*", name)}


def is_private(path: str) -> bool:
    """Whether a path says more than that the machine runs Linux, and a URL more than that it is this one."""
    return _SYSTEM.fullmatch(path) is None and _LOOPBACK.fullmatch(path) is None


def is_address(text: str) -> bool:
    """Whether what looks like an address of IP or of hardware is one, and not one that every machine has."""
    if text in _EVERYWHERE:
        return False
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return _HARDWARE.fullmatch(text) is not None
    # Names of C++ may be of these letters too (c10::add), though not of three parts.
    return (
        address.version == 4
        or len(list(filter(None, text.split(":")))) > 2
        or _NETWORK.match(text) is not None
    )
