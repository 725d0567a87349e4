"""What a secret looks like: keys of known services, and what stands before passwords; the group `it` is the secret."""

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

HEX = r"[0-9a-fA-F]"
_WORDS = (
    r"token|passw(?:or)?d|passwd|passphrase|passcode|requirepass|secret|credentials?|jfrog-art-api|auth[._-]?key"
    r"|(?:api|access|account|private|secret|encryption|signing|(?:pre)?shared|storage|license|deploy|master|wandb"
    r"|subscription|functions)[._-]?key"
)
# A place that a value is put into: `%s`, `{}`, `{name}`.
FIELD = r"(?!%[-\d.]*[a-z]\b|\{[^{}\n]{0,80}\})"
# In quotes, which in JSON within JSON have backslashes; no word in brackets, as `<pad>` is.
_VALUE = rf"\\*(?P<it>\"(?![<\[])[^\"\n]+\"|'(?![<\[])[^'\n]+'|{FIELD}[^\s\"',;&\\]+)"
# Behind a name, what closes its quotes and brackets: `environ["TOKEN"]`.
_CLOSED = r"[\"'\\\])]{0,4}[ \t]*"
# Blanks, with the end of a line among them also as JSON writes it.
_LINE = r"(?:\s|\\n)+"
# Behind an option: a blank, or in a list the next string.
_NEXT = r"(?:[ \t]+|[\"'],[ \t]*)"
# Words between a program and its option.
_FEW = r"[ \t]+(?:\S+[ \t]+){0,8}?"
# How keys begin that only one service gives out, and behind what else letters and digits are a key.
_BEGINS = (
    "nvapi- gh[pousr]_ github_pat_ gl(?:pat|rt|dt|ft|soat|cbt|ptt|imt|agent|oas|ffct|wt)- GR1348941 glsa_ glc_ "
    "sntry[su]_ (?:sk|rk)_(?:live|test)_ whsec_ shp(?:at|ca|pa|ss)_ sq0[a-z]{3}- NRAK- PMAK- lin_api_ figd_ "
    "dp\\.[a-z]{2,5}\\. xox[a-z]- xoxe\\. xapp- hv[bsr]\\. dckr_[a-z]{3}_ do[por]_v1_ ya29\\. GOCSPX- AIza 1//0 pypi- "
    "rubygems_ ATATT3 ATCTT3 ATBB AKCp HRKU- tskey- sbp_ pscale_ ops_eyJ bkua_ CCIPAT_ lsv2_ gsk_ csk- GOOG1E "
    "hf_oauth_ wandb_v1_ tgp_v1_ pplx- xai- pul- AGE-SECRET-KEY- LS0tLS1CRUdJTi IQoJb3JpZ2lu FwoGZXIvYXdz "
    "fm[12]_ vercel_blob_rw_ (?:AKID|LTAI|AQVN|EZAK)(?=[\\w-]{0,40}\\d) shippo_(?:live|test)_ tvly- pcsk_ xkeysib- "
    "sgp_[0-9a-f]{16}_ secret_[a-z]+_(?=[0-9a-f]{32}) pat\\w{14}\\.(?=[0-9a-f]{20}) A3-[A-Z0-9]{6}- y0_[\\w-]{40} "
    "re_[A-Za-z0-9]{8}_(?=[A-Za-z]{0,20}\\d)(?=[a-z\\d]{0,20}[A-Z]) "
    "pa-(?=[\\w-]{0,30}\\d)(?=[\\w-]{40}) t1\\.(?=[\\w-]{20,400}=*\\.[\\w-]{80}) "
    "cmVmdGtu [\\w~.-]{3}\\dQ~ [A-Za-z0-9]{14}\\.atlasv1\\."
)
_HAS_DIGIT = r"(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]"
# Behind no letter, but behind the end of a line as JSON and logs write it.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
# What is a secret wherever it stands.
FORMS = tuple(
    re.compile(text)
    for text in (
        rf"{_START}(?:{'|'.join(_BEGINS.split())})[\w~+/=-]{{8,}}(?:\.[\w~+/=-]+)*",
        rf"{_START}(?:(?:hf|api_org)_[A-Za-z0-9]{{10,}}|sk-(?=[\w-]{{0,80}}?\w{{16}})[\w-]{{16,}}"
        rf"|(?:(?:ntn|secret|npm|rpa|r8|fw|sk|sq[aup]|fo1|waka|rdme|ddp|tfp|pnu|jina|apify_api|ph[cx]|(?i:kgat))_|cio"
        rf"|a[ks]-){_HAS_DIGIT}{{20,}}(?:[_.-]\w+)*|EAA[A-Z][\w-]{{40,}}|sl\.[\w-]{{100,}})(?![\w-])",
        rf"{_START}(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{{12,}}(?:[\s,:/\"']{{1,4}}[\w/+]{{40}}(?![\w/+]))?",
        rf"{_START}eyJ[\w-]{{8,}}\.?[\w-]{{8,}}(?:\.[\w-]+)?",
        rf"{_START}(?:dapi|key-|AC|SK){HEX}{{32}}(?:-\d)?(?!\w)|{_START}{HEX}{{32}}-us\d+\b",
        rf"{_START}(?:SG\.[\w-]{{16,}}\.[\w-]{{16,}}"
        rf"|[MNO][\w-]{{23,25}}\.[\w-]{{6}}\.[\w-]{{27,}}|\d{{8,10}}:[\w-]{{35}})(?!\w)",
        rf"{_START}[sbr]\.(?=[A-Za-z]*\d)(?=[a-z\d]*[A-Z])[A-Za-z0-9]{{24}}(?!\w|\.\w)",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]*(?:-----END [A-Z0-9 ]{0,40}-----)?",
        # Passwords as systems keep them.
        r"\$(?:apr1|2[aby]|[156y]|argon2\w{1,2})\$[\w./$=,+-]{8,}",
        r"PuTTY-User-Key-File-\d:(?:[^\n]*\n?){0,99}",
    )
)

# What tells by its surroundings that it is one.
CONTEXTS = (
    # A token of a text is a value only where it looks like one.
    rf"(?i)(?:{_WORDS}){_CLOSED}(?:=>?|:=?(?![ \t]+(?:[a-z]+(?:[\s.,\"']|$)|[^\s\"'\\]\S{{0,2}}(?:\s|$))))"
    rf"[ \t]*{_VALUE}",
    # In a file of settings and in XML it may have blanks.
    r"(?im)(?:^|(?<=[\"'])|(?<=\\n))[ \t]*[\w.]*(?:passw(?:or)?d|passphrase|secret)[ \t]+=[ \t]+"
    r"(?P<it>[^\s\"'([{][^\n#;\"'\\]*)",
    rf"(?i)<[\w:-]*(?:{_WORDS})>(?P<it>[^<\s][^<\n]*)",
    rf"(?i)authorization[\"']?[ \t]*[:=][ \t]*(?:(?:bearer|basic|token|apikey|bot)[ \t]+)?{_VALUE}",
    r"(?i)cookie[\"'\\]*[ \t]*[:=][ \t]*[\"'\\]*(?P<it>[^\s;=:]+=[^\n\"'\\]+)",
    rf"(?i)(?:passw(?:or)?d|passwd|passphrase|[_-]token|[_-]secret):[ \t]+{_VALUE}",
    rf"(?i)(?<![a-z])pwd[ \t]*[:=][ \t]*(?![/~\\]|[A-Z]:){_VALUE}",
    rf"(?i)(?<![a-z])(?:pw|psk){_CLOSED}[:=][ \t]*(?![\d.]+[a-z]{{0,3}}(?!\w)){_VALUE}",
    rf"(?i)(?<![a-z])pass{_CLOSED}[:=][ \t]*(?=\W?[^\W\d]*\d)(?=\W?\d*[a-z])(?=\S{{6}}){_VALUE}",
    rf"(?i)\b(?:password|passwd|passphrase)[ \t]+(?:(?:is|was)[ \t]+)?(?=[^\W\d]*\d)(?=\d*[^\W\d]){_VALUE}",
    # As netrc has it, in a line or in lines of their own.
    rf"\blogin[ \t]+[^\s\\]+{_LINE}(?:account[ \t]+[^\s\\]+{_LINE})?password[ \t]+{_VALUE}",
    rf"[a-z]Pass=(?=\S{{6}}){_VALUE}",
    r"\blogin(?:[ \t]+(?:--?[\w-]+(?:=\S+)?|https?:\S+)){0,6}[ \t]+(?P<it>(?=[a-z]*[A-Z\d])[\w.-]{20,})",
    rf"(?i)(?<!\w)--?[\w.-]{{0,40}}(?:{_WORDS}){_NEXT}(?!\"?-){_VALUE}",
    rf"(?i)\b(?:setx?|add|config)(?:[ \t]+-\w+)?[ \t-]+\S{{0,80}}?(?:{_WORDS})[ \t]+(?=\S*\d)(?=\S{{8}}){_VALUE}",
    rf"\b(?:mysql|mariadb|mongo|sshpass|login)\w*(?:[ \t]+\S+){{0,8}}?[ \t]+-p[ \t]*(?!-){_VALUE}",
    rf"\b(?:redis-cli{_FEW}-a|ldap\w+{_FEW}-w|(?:ipmi\w+|sqlcmd){_FEW}-P|snmp\w+{_FEW}-c|openssl{_FEW}-k"
    rf"|7z\w?{_FEW}-p|(?:un)?zip{_FEW}-P)[ \t]*(?!-){_VALUE}",
    rf"\bhtpasswd[ \t]+(?:-\w+[ \t]+){{0,8}}-\w*b\w*[ \t]+(?:-\w+[ \t]+){{0,8}}[^\s-]\S*[ \t]+\S+[ \t]+{_VALUE}",
    # A name and its password, as curl takes them; with numbers it is who runs a container.
    rf"(?<![\w-])(?:-u|--(?:(?:proxy-)?user|(?:\w+-)?creds))(?:{_NEXT}|=)?\\*[\"']?(?P<it>(?!\d+:\d+\b){FIELD}[^\s:\"'/]+:[^\s\"']+)",
    r"\b(?i:bearer)[ \t]+(?P<it>(?=[a-z._~+/=-]*[A-Z0-9])[\w.+/=~-]{8,})",
    r"\b(?i:basic)[ \t]+(?P<it>(?=[A-Za-z+/]*[\d=])[A-Za-z0-9+/]{8,}={0,2})",
    r"(?i)\b_?auth[\"'\\]*[ \t]*[:=][ \t]*[\"'\\]*(?P<it>[\w+/=-]{16,})",
    r"(?i)(?:(?<![a-z])sig|(?<=[?&])signature|-signature|-credential)=(?P<it>(?=[a-z%+/=-]*\d)[\w%+/=-]{8,})",
    r"\"username\\*\"\s*:\s*\\*\"[^\"]*\"\s*,\s*\\*\"key\\*\"\s*:\s*\\*\"(?P<it>[^\"\\]+)",
    # A variable of a manifest, and one that a program sets.
    rf"(?i)\b(?:name|key){_CLOSED}[:=][ \t]*[\"'\\]*[\w.-]*(?:{_WORDS})[\"'\\]*(?:,|\s|\\n)+[\"'\\]*value"
    rf"{_CLOSED}[:=][ \t]*{_VALUE}",
    rf"(?i)\b(?:setdefault|setenv|putenv)\([\"']\w*(?:{_WORDS})[\"'],[ \t]*{_VALUE}",
    rf"(?i)get(?:env)?\(\\*[\"']\w*(?:{_WORDS})\\*[\"'],[ \t]*\\*(?P<it>[\"'](?![<\[])[^\"'\n]{{6,}}[\"'])",
    r"\blogin\([^()\n]{0,99}\bkey=\\*[\"'](?P<it>[^\"'\\\n]+)",
    r"\baccount\.key\.[\w.-]+=(?P<it>\S+)",
    # A file of PostgreSQL's passwords.
    r"(?<![\w.-])[\w.*-]+:(?:\d{4,5}|\*):[A-Za-z*][\w*-]*:[A-Za-z*][\w.*-]*:(?P<it>[^\s:]+)(?!\S)",
    r"(?<=://)(?P<it>[^\s/@{}]+)(?=@)",
)
# What a field or an option is called whose value is nothing but a secret.
SECRET_NAME = re.compile(rf"(?i)[\w.-]*(?:{_WORDS})|pw|pwd")


@functools.cache
def _scanner() -> "Scanner | None":
    """Kingfisher's own rules for hundreds of services, where the extra `bundle` is installed; they ask nobody."""
    try:
        from kingfisher_sdk import Rules, Scanner
    except ImportError:
        return None
    return Scanner(Rules(confidence="low"))


def scanned(text: str) -> Iterator[tuple[int, int]]:
    """Where the scanner of others finds a secret, in base64 too; nowhere without it."""
    scanner = _scanner()
    data = text.encode(errors="replace")
    for finding in scanner.scan(data) if scanner is not None else ():
        place = finding.location
        start, end = (
            len(data[: place[name]].decode(errors="replace"))
            for name in ("start_offset", "end_offset")
        )
        yield start, end
