"""Checksums of RNTuples, which uproot reads over.

The format has one at the end of every list of pages, and writers may put one behind every page:
XXH3 of 64 bits, little-endian (ROOT, RNTuple binary format specification 1.0, "Envelopes" and
"Page Locations"). TTrees have none but those of their compression.
"""

from __future__ import annotations

from typing import Any

__all__ = ["check_page_lists", "check_pages"]

_BYTES = 8


def check_page_lists(tree: Any) -> None:
    """ValueError if a list of pages is not what was written; numbers of rows come from them."""
    for record in tree.footer.cluster_group_records:
        link = record.page_list_link
        chunk, _ = tree.read_locator(link.locator, link.env_uncomp_size)
        stored = bytes(chunk.raw_data[: link.env_uncomp_size])
        _compare(stored[:-_BYTES], stored[-_BYTES:], "a list of pages")


def check_pages(tree: Any, name: str, start: int, stop: int) -> None:
    """ValueError if a page of a field with rows in [start, stop) is not what was written."""
    fields, wanted = [tree[name]], set()
    while fields:
        field = fields.pop()
        wanted.add(field.field_id)
        fields += field.fields
    columns = [column.idx for column in tree.column_records if column.field_id in wanted]
    for number, cluster in enumerate(tree.cluster_summaries):
        first = cluster.num_first_entry
        if first >= stop or first + cluster.num_entries <= start:
            continue
        for column in columns:
            for page in tree.page_link_list[number][column].pages:
                if page.has_checksum:
                    where = page.locator
                    end = where.offset + where.num_bytes
                    stored = bytes(tree.file.source.chunk(where.offset, end + _BYTES).raw_data)
                    _compare(stored[:-_BYTES], stored[-_BYTES:], "a page")


def _compare(content: bytes, checksum: bytes, what: str) -> None:
    import xxhash  # comes with uproot

    if xxhash.xxh3_64_intdigest(content) != int.from_bytes(checksum, "little"):
        raise ValueError(f"the checksum of {what} does not match")
