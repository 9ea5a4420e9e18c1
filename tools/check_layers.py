#!/usr/bin/env python3
"""Fails if a folder of heddle/ includes a folder that its CMake target does not link.

CMake is the only place that declares dependences. A folder may also include what its
dependencies link. Only targets marked TORCH, and those that link one, may include libtorch. A
wing is a folder directly below heddle/: wings do not link each other in a cycle, and none links
an edge. With --dot, prints the graph of targets for Graphviz."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = re.compile(r"heddle_target\(([\w/]+)([^)]*)\)")
LIBRARY = re.compile(r"target_link_libraries\(heddle_(cli(?:_torch)?|python(?:_torch)?) (?:PUBLIC|PRIVATE)([^)]*)\)")
INCLUDE = re.compile(r'^\s*#include\s+[<"]([^">]+)[">]', re.M)
# Folders below heddle/ that no wing links.
EDGES = ["api", "cli", "import", "python", "report"]
# These may include any folder, and no folder includes them.
TOP = ["test", "bench", "fuzz"]


def read_targets():
    """Returns, by folder: the folders that its target links, and whether it may use libtorch."""
    words = {}
    for path in sorted((ROOT / "heddle").rglob("CMakeLists.txt")):
        text = re.sub(r"#.*", "", path.read_text())
        # A library that an option adds.
        text = re.sub(r"\$<\$<BOOL:[^>]*>:(\w+)>", r"\1", text)
        for name, rest in TARGET.findall(text):
            words[name] = rest.split()
        for name, rest in LIBRARY.findall(text):
            words[name.replace("_", "/")] = rest.split() + (["TORCH"] if "torch" in name else [])
        if "python/torch" in words:
            # It compiles errors.cc of the folder above.
            words["python/torch"].append("heddle_python")
    folder_of_target = {f"heddle_{name.replace('/', '_')}": name for name in words}
    return {name: ([folder_of_target[word] for word in rest if word in folder_of_target],
                   "TORCH" in rest) for name, rest in words.items()}


def reachable(folder, targets):
    seen, open_folders = {folder}, [folder]
    while open_folders:
        for below in targets[open_folders.pop()][0]:
            if below not in seen:
                seen.add(below)
                open_folders.append(below)
    return seen


def wing_links(targets):
    """Returns, by wing or edge: the others that its folders link."""
    links = {name.split("/")[0]: set() for name in targets}
    for name, (below, _) in targets.items():
        links[name.split("/")[0]] |= {folder.split("/")[0] for folder in below}
    return {wing: sorted(below - {wing}) for wing, below in links.items()}


def wing_problems(targets):
    links = {wing: (below, False) for wing, below in wing_links(targets).items()}
    problems = [f"heddle/{wing}: this wing links itself, through others" for wing in links
                if any(wing in reachable(below, links) for below in links[wing][0])]
    return problems + [f"heddle/{wing}: a wing links the edge {below}" for wing in links
                       for below in links[wing][0] if below in EDGES and wing not in EDGES]


def folder_of(path, targets):
    """Returns the folder of heddle/ that contains a path: the longest one with a target."""
    parts = pathlib.PurePosixPath(path).parts[:-1]
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) in targets:
            return "/".join(parts[:n])
    return None


def problems_of(path, targets):
    relative = path.relative_to(ROOT / "heddle").as_posix()
    folder = folder_of(relative, targets)
    if folder is None:
        return [f"heddle/{relative}: its folder has no target"]
    allowed = reachable(folder, targets)
    problems = []
    for include in INCLUDE.findall(path.read_text()):
        if include.startswith("heddle/"):
            below = folder_of(include.removeprefix("heddle/"), targets)
            if below not in allowed:
                problems.append(f"heddle/{relative}: {folder} does not link {below} ({include})")
        elif re.match(r"(torch|ATen|c10)/", include) and not any(targets[f][1] for f in allowed):
            problems.append(f"heddle/{relative}: {folder} may not include libtorch ({include})")
        elif include.split("/")[0] in TOP:
            problems.append(f"heddle/{relative}: nothing includes {include}")
    return problems


def main():
    targets = read_targets()
    if "--dot" in sys.argv:
        edges = [f'  "{name}" -> "{below}"' for name in targets for below in targets[name][0]]
        print("digraph {\n" + "\n".join(sorted(edges)) + "\n}")
        return 0
    files = sorted(p for p in (ROOT / "heddle").rglob("*") if p.suffix in (".h", ".cc", ".def")
                   and p.parent.name != "test" and not p.name.endswith("_test.cc"))
    problems = [f"heddle/{name}: its target links itself, through others" for name in targets
                if any(name in reachable(below, targets) for below in targets[name][0])]
    problems += wing_problems(targets)
    problems += [problem for path in files for problem in problems_of(path, targets)]
    print("\n".join(problems) if problems
          else f"{len(files)} files in {len(targets)} folders, every include goes down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
