"""What a model file says of itself: what it is called, who made it, from what, and under which licence. No I/O.

Keys of general.* are those of the GGUF format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). It has none
for the revision of a source: that one is our own.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Self

from liveasr.gguf_file import GgufFile

MAX_CHARACTERS = 300
"""Of one of the texts: a licence in full would fill every screen."""
LANGUAGES_KEY = "general.languages"
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,15}")
_MOST_LANGUAGES = 200
KEYS = {
    "name": ("general.name", "general.basename"),
    "author": ("general.author",),
    "organization": ("general.organization",),
    "licence": ("general.license",),
    "licence_name": ("general.license.name",),
    "licence_link": ("general.license.link",),
    "source": ("general.source.url", "general.url"),
    "repository": ("general.source.repo_url", "general.repo_url", "general.source.huggingface.repository"),
    "revision": ("liveasr.revision",),
}
"""Field -> the keys that may tell it, first the one that is written."""
_UNNAMED_LICENCES = ("other", "unknown")
"""What hubs call licences that have no identifier; the name stands under a key of its own then."""
HUGGING_FACE = "https://huggingface.co/"
MODELSCOPE = "https://modelscope.cn/models/"
_PAGES = {
    HUGGING_FACE: re.compile(r"https?://(?:www\.)?huggingface\.co/([^/]+/[^/?#]+)"),
    MODELSCOPE: re.compile(r"https?://(?:www\.)?modelscope\.cn/models/([^/]+/[^/?#]+)"),
}
"""How to know a page of a repository there."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Texts of one line. What is not known is None, or empty."""

    name: str | None = None
    author: str | None = None
    organization: str | None = None
    licence: str | None = None
    """An identifier where there is one, as Apache-2.0."""
    licence_name: str | None = None
    licence_link: str | None = None
    source: str | None = None
    """URL of what the file was made from."""
    repository: str | None = None
    """URL of the repository that this lies in."""
    revision: str | None = None
    """Of the repository."""
    languages: tuple[str, ...] = ()
    """Codes, as zh and en."""

    @property
    def licence_words(self) -> str | None:
        """The licence in a few words."""
        identifier = None if (self.licence or "").lower() in _UNNAMED_LICENCES and self.licence_name else self.licence
        words = identifier or self.licence_name
        return f"{words}, {self.licence_link}" if words and self.licence_link else words or self.licence_link

    def or_else(self, other: Self) -> Self:
        """This one, and where it tells nothing, another; a licence or a source is never put together from both."""
        if self.licence_words:
            other = replace(other, licence=None, licence_name=None, licence_link=None)
        if (self.source or self.repository) and self.repository != other.repository:
            other = replace(other, source=None, repository=None, revision=None)
        missing = {field: getattr(other, field) for field in (*KEYS, "languages") if not getattr(self, field)}
        return replace(self, **missing)


UNKNOWN = Provenance()


def of_repository(hub: str, repository: str, revision: str | None = None) -> Provenance:
    """What the name of a repository tells: whose it is, and what it is called.

    Args:
        hub: HUGGING_FACE or MODELSCOPE.
        repository: OWNER/NAME.
        revision: a commit of it.
    """
    owner, _, name = repository.partition("/")
    return Provenance(name=name, organization=owner, repository=hub + repository, revision=revision)


def of_page(url: str) -> Provenance:
    """What a URL tells as the source of a model; more where it is a page of a repository."""
    for hub, page in _PAGES.items():
        if match := page.match(url):
            return of_repository(hub, match[1])
    return Provenance(source=url)


def repository_name(url: str | None) -> str | None:
    """OWNER/NAME, of the URL of a repository."""
    return next((match[1] for page in _PAGES.values() if (match := page.match(url or ""))), None)


def language_codes(values: object) -> tuple[str, ...]:
    """Those among the values of a list, or in a text, that can be codes of languages.

    ModelScope's cards call Mandarin cn, which is the code of a country.
    """
    texts = [values] if isinstance(values, str) else values if isinstance(values, list) else []
    codes = [text for text in texts if isinstance(text, str) and _LANGUAGE.fullmatch(text)]
    return tuple(dict.fromkeys("zh" if code.lower() == "cn" else code for code in codes[:_MOST_LANGUAGES]))


def read(file: GgufFile) -> Provenance:
    """What a file says, fit for a line."""
    found: dict[str, Any] = {"languages": language_codes(file.metadata.get(LANGUAGES_KEY))}
    for field, keys in KEYS.items():
        texts = (file.metadata.get(key) for key in keys)
        found[field] = next((_line(text) for text in texts if isinstance(text, str) and text), None)
    return Provenance(**found)


def _line(text: str) -> str:
    """A text without what a terminal would obey, and not too long."""
    cut = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} ..."
    return "".join(character if character.isprintable() else " " for character in cut)
