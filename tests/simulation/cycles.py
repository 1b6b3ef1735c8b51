"""Cycles of writes and reads: Adya's anomalies G0 and G1c, as Jepsen looks for them in logs (jepsen.io/kafka, Elle).

Nodes are committed transactions. One depends on another if its record directly follows the other's in a partition (ww),
or if it was computed from the other's record (wr). An order in which they could have run one after the other exists
exactly if there is no cycle.

A transaction that publishes before it ends takes its places in the partitions then, as in Kafka. Two of them may stand
before each other in two partitions. So only those that publish with their commit give ww edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from tests.simulation.clienthistory import ClientHistory, Place, Transaction

__all__ = ["Edges", "check_cycles", "components", "dependencies"]

Edges = dict[str, dict[str, str]]
"""From a transaction to those that depend on it, with the kind of the dependence."""


def check_cycles(history: ClientHistory) -> None:
    """No write cycle (G0), and no cycle of writes and reads (G1c).

    Raises:
        AssertionError: there is one.
    """
    edges = dependencies(history)
    writes = {
        source: {target: kind for target, kind in targets.items() if kind == "ww"} for source, targets in edges.items()
    }
    for cycle in components(writes):
        raise AssertionError(f"G0, a cycle of writes: {_told(cycle, writes)}")
    for cycle in components(edges):
        raise AssertionError(f"G1c, a cycle of writes and reads: {_told(cycle, edges)}")


def dependencies(history: ClientHistory) -> Edges:
    """Return which depends on which, by the final view and by what each was computed from."""
    by_value = history.by_value()
    edges: Edges = defaultdict(dict)
    partitions: dict[Place, list[Transaction]] = defaultdict(list)
    for record in sorted(history.final_view(committed=True).records, key=lambda record: record.offset):
        writer = by_value.get(record.value)
        if writer is None:
            continue
        partitions[record.place].append(writer)
        for value in writer.inputs:
            source = by_value.get(value)
            if source is not None and source is not writer:
                edges[source.name][writer.name] = "wr"
    for writers in partitions.values():
        fused = [writer for writer in writers if writer.fused]
        for before, after in pairwise(fused):
            if before is not after:
                edges[before.name].setdefault(after.name, "ww")
    return edges


def components(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, or of one that depends on itself (Tarjan, 1972).

    Without recursion: a history may be longer than Python's stack.
    """
    indexes: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []

    def open_(node: str) -> None:
        indexes[node] = lowest[node] = len(indexes)
        stack.append(node)
        on_stack.add(node)

    for root in list(edges):
        if root in indexes:
            continue
        open_(root)
        work = [(root, iter(edges.get(root, ())))]
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == indexes[node]:
                    found.append(_popped(stack, on_stack, node))
            elif target not in indexes:
                open_(target)
                work.append((target, iter(edges.get(target, ()))))
            elif target in on_stack:
                lowest[node] = min(lowest[node], indexes[target])
    return [nodes for nodes in found if len(nodes) > 1 or nodes[0] in edges.get(nodes[0], ())]


def _popped(stack: list[str], on_stack: set[str], node: str) -> list[str]:
    component = []
    while True:
        component.append(stack.pop())
        on_stack.discard(component[-1])
        if component[-1] == node:
            return component


def _told(cycle: list[str], edges: Edges) -> str:
    inside = set(cycle)
    return ", ".join(
        f"{source} -{kind}-> {target}"
        for source in sorted(cycle)
        for target, kind in sorted(edges.get(source, {}).items())
        if target in inside
    )
