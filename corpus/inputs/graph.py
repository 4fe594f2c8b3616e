"""Shortest paths in a made-up graph of objects: graph.py NODES"""
import heapq
import sys


class Node:
    def __init__(self, name):
        self.name = name
        self.edges = {}
        self.distance = None


def main(count):
    state = 1
    nodes = [Node(f"node {number}") for number in range(count)]
    for number, node in enumerate(nodes):
        for _ in range(4):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            node.edges[nodes[(state >> 8) % count].name] = 1 + state % 97
        node.edges[nodes[(number + 1) % count].name] = 50
    by_name = {node.name: node for node in nodes}
    queue = [(0, nodes[0].name)]
    while queue:
        distance, name = heapq.heappop(queue)
        node = by_name[name]
        if node.distance is not None:
            continue
        node.distance = distance
        for other, length in node.edges.items():
            if by_name[other].distance is None:
                heapq.heappush(queue, (distance + length, other))
    print(max(node.distance for node in nodes), sum(node.distance for node in nodes))


main(int(sys.argv[1]))
