# SPDX-License-Identifier: Apache-2.0
# stage.py REPOSITORY FOLDER: lays out what Sphinx reads. The pages stay as they are on a code host, README.md becomes the index, a file of the repository that a page links becomes a page of
# its own, and the public names of the library, grouped, get one page a group. What is written here is written only where it changed, so that Sphinx does little the second time.
import os
import re
import shutil
import sys
import xml.etree.ElementTree as tree
from pathlib import Path

# The navigation. Pages of docs/ that stand nowhere here come last, under "More": no page is lost.
NAVIGATION = [
    ("Begin", ["which", "install", "your_loop", "schedules", "links", "front", "processes", "attach"]),
    ("Understand", ["algorithm", "stability", "coarse", "local_updates", "demo", "galore", "muon", "numbers", "digits", "deadlines"]),
    ("In company", ["mesh", "experts", "reinforcement_learning", "games"]),
    ("Run", ["checkpoints", "network", "gpu", "security", "errors", "performance"]),
    ("Other languages and libraries", ["c", "torch_and_eigen", "ggml"]),
    ("Work on acco", ["extending", "architecture", "CONTRIBUTING", "CHANGELOG"]),
]

def listed(room):  # the types of the library's list of all rules, or of all schedules
    header = (Path(__file__).parents[2] / f"include/acco/{room}/all.hpp").read_text(encoding="utf-8")
    return re.findall(r"[a-z_]+", re.search(rf"using all_{room}s = type_list<(.*)>;", header, re.S).group(1).replace("<>", ""))


# The reference: page, title, what it is about, public names. A name that does not exist ends the build; what stands nowhere here is not public.
REFERENCE = [
    ("optimizer", "Optimizers", "What a trainer holds.",
     ["any_optimizer", "optimizer", "micro_batch_sums", "unfinished", "options", "non_finite", "habit_checks", "norm_detail", "tensor_spans"]),
    ("schedules", "Schedules and paces", "When a round travels, what it carries, and what its update does.",
     [*listed("schedule"), "masha", "any_pace", "no_prediction", "rule_prediction", "extrapolation", "velocity", "predictor", "elementwise_predictor", "no_compensation",
      "delay_compensation", "compensation", "elementwise_compensation", "fixed_pace", "elastic_pace", "auto_pace", "schedule", "round_plan", "schedule_period", "carried", "update", "computation",
      "step_part", "pace", "measuring_pace", "pace_seconds"]),
    ("local_updates", "Local updates", "Workers that train by themselves and exchange now and then: `#include <acco/outer.hpp>`.",
     ["local_updates", "waiting", "keeping", "restarting", "eager", "pulling", "local_sgd", "fedavg", "slowmo", "diloco", "mu_loco", "delayed_diloco", "eager_diloco", "co2", "overlap_local_sgd", "streaming_diloco", "worker_weights", "averaging", "clipped_momentum", "sparse_exchange", "outer_report"]),
    ("galore", "GaLore", "Matrices in bases of few directions: `#include <acco/galore.hpp>`.", ["galore"]),
    ("advice", "Which one for a link", "Expected speed, loss and memory, and a virtual clock: `#include <acco/advice.hpp>`.",
     ["advise", "expect", "proposal", "situation", "compute_times", "training_size", "network_link", "link_of", "way", "wire_bytes", "measured_ways", "memory_per_parameter", "simulate", "timed_part",
      "timeline"]),
    ("make", "Chosen by name", "Schedules and rules that a flag or a configuration names: `#include <acco/make.hpp>`.",
     ["make", "with_schedule", "with_rule", "at_pace", "named_schedules", "decorated_schedules", "all_schedules", "all_rules", "type_list", "named", "only", "without"]),
    ("rules", "Update rules", "Pure functions of one element, or of a matrix.",
     [*listed("rule"), "decay", "gpa", "primal_averaging", "muon", "muon_scale", "rules", "update_rule", "update_step", "update_group", "check_update_rule", "matrix_rule", "matrix_view"]),
    ("learning_rates", "Learning rates", "Factors of the rule's own learning rate, as functions of what has been committed.",
     ["constant", "warmup_cosine", "warmup_linear", "warmup_stable_decay", "cooldown", "warmup_cosine_restarts", "in_steps", "in_samples", "in_tokens", "training_position",
      "learning_rate_function"]),
    ("layout", "Layouts", "Tensors, groups and shares.", ["parameter_layout", "tensor_memory", "partition", "bucket"]),
    ("storage", "Storages and numbers", "What parameters, gradients and masters are made of.",
     ["host_storage", "cuda_storage", "storage", "storage_traits", "storage_queue", "queue_traits", "bfloat16", "half", "is_finite"]),
    ("backends", "Backends", "How ranks meet.",
     ["solo_backend", "threads_backend", "gloo_backend", "gloo_options", "mpi_backend", "mpi_options", "mpi_progress", "nccl_backend", "nccl_options", "nccl_from_mpi", "shared_secret",
      "collective_backend", "backend_traits", "collective"]),
    ("around", "Around a backend", "Decorators, and a world for tests.",
     ["debug", "traced", "rate_limited", "link_model", "decorated_backend", "mock_world", "mock_backend", "mock_options", "mock_counters", "mock_fault", "complete_at_once", "complete_at_random",
      "complete_when_waited_for"]),
    ("networks", "A network of your own", "What `docs/extending.md` builds a backend from.", ["message_transport", "message_backend", "progress"]),
    ("encodings", "Encodings", "Numbers that travel in few bits.", ["block_int8", "block_int4", "bfloat16_wire", "block_gauss4", "block_gauss3", "block_gauss2", "block_stat2", "block_ternary", "block_sign", "rotated", "block_top", "block_random", "scaled_random", "block_dct_top", "block_dct2_top", "mean_over", "coded", "full", "own_slice", "own_corrected", "updated_by_all", "reference_gradients", "against_reference", "majority_vote", "demo_wire", "demo", "demo_sharded", "encoding", "with_feedback", "with_feedback_ahead", "error_feedback", "decoupled_momentum", "local_momentum", "ef21", "feedback", "int8_blocks", "planned", "auto_encoding", "planned_bucket"]),
    ("reports", "Reports, memory, traces", "What a training tells.",
     ["round_report", "round_totals", "save_outcome", "time_interval", "memory_table", "trace"]),
    ("errors", "Errors", "All of one family. [What each message means](../docs/errors.md).",
     ["error", "usage_error", "mismatch_error", "peer_error", "deadline_error", "non_finite_error", "spike_error", "corruption_error", "checkpoint_error", "memory_error", "device_error",
      "error_place"]),
    ("version", "Version", "Of the headers.", ["version_number", "version"]),
]

LINK = re.compile(r"(\]\()([^)\s#]*)(#[^)\s]*)?(\))")
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".h": "cpp", ".cu": "cpp", ".cuh": "cpp", ".cmake": "cmake", ".py": "python", ".sh": "sh", ".cff": "yaml", ".json": "json"}


def staged_name(page):  # of a page of the repository
    return "index.md" if page == "README.md" else page


class Stage:
    def __init__(self, root, folder):
        self.root, self.folder, self.kept = root, folder, set()

    def put(self, name, text):
        path = self.folder / name
        self.kept.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")

    def file_page(self, path):  # a page that shows a file of the repository
        name = f"files/{path}.md"
        language = LANGUAGES.get(Path(path).suffix, "text")
        source = os.path.relpath(self.root / path, (self.folder / name).parent)
        self.put(name, f"---\norphan: true\n---\n# {path}\n\n```{{literalinclude}} {source}\n:language: {language}\n```\n")
        return name

    def folder_page(self, path):  # a page that lists what the repository keeps in a folder
        name = f"files/{path}/index.md"
        entries = []
        for file in sorted(file for file in (self.root / path).rglob("*") if file.is_file() and not file.name.startswith(".")):
            below = file.relative_to(self.root).as_posix()
            entries.append(f"- [{file.relative_to(self.root / path).as_posix()}]({os.path.relpath(self.file_page(below), os.path.dirname(name))})")
        self.put(name, f"---\norphan: true\n---\n# {path}/\n\n" + "\n".join(entries) + "\n")
        return name

    def page(self, page, extra=""):
        here = os.path.dirname(page)

        def led(match):
            target = match.group(2)
            if not target or "://" in target:
                return match.group(0)
            path = os.path.normpath(os.path.join(here, target))
            file = self.root / path
            if file.is_dir():
                new = self.folder_page(path)
            elif not file.is_file() or file.suffix == ".svg":
                return match.group(0)  # a picture; or nowhere: Sphinx will say so
            else:
                new = staged_name(path) if path in self.pages else self.file_page(path)
            return f"{match.group(1)}{os.path.relpath(new, here or '.')}{match.group(3) or ''}{match.group(4)}"

        parts = re.split(r"(^```.*?^```$)", (self.root / page).read_text(encoding="utf-8"), flags=re.M | re.S)
        self.put(staged_name(page), "".join(part if part.startswith("```") else LINK.sub(led, part) for part in parts) + extra)

    def reference(self, kinds):
        for page, title, about, names in REFERENCE:
            text = f"# {title}\n\n{about}\n"
            for name in names:
                kind = kinds[name]
                members = "\n:members:" if kind in ("class", "struct") else ""
                if members and not name.endswith(("_storage", "_backend")):  # whose undocumented members are the engine's
                    members += "\n:undoc-members:"
                text += f"\n## {name}\n\n```{{doxygen{kind}}} acco::{name}{members}\n```\n"
            self.put(f"api/{page}.md", text)
        rows = "\n".join(f"- [{title}]({page}.md): {about.split(' [')[0]}" for page, title, about, _ in REFERENCE)
        tree = "\n".join(page for page, *_ in REFERENCE)
        self.put("api/index.md", "# C++ reference\n\nThe public names of namespace `acco`; `#include <acco/acco.hpp>` brings those that need only the standard library.\n\n"
                 f"{rows}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n")

    def build(self, kinds):
        docs = sorted(path.stem for path in (self.root / "docs").glob("*.md"))
        self.pages = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} | {f"docs/{name}.md" for name in docs}
        navigation = [(caption, [name for name in names if name in docs or name.isupper()]) for caption, names in NAVIGATION]
        placed = {name for _, names in navigation for name in names}
        navigation.append(("More", [name for name in docs if name not in placed]))
        trees = ""
        for caption, names in navigation:
            if names:
                entries = "\n".join(name if name.isupper() else f"docs/{name}" for name in names)
                trees += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
        trees += "\n```{toctree}\n:hidden:\n:caption: Reference\n\napi/index\n```\n"
        for page in self.pages:
            self.page(page, trees if page == "README.md" else "")
        shutil.copytree(self.root / "docs/images", self.folder / "docs/images", dirs_exist_ok=True)
        self.reference(kinds)
        for path in self.folder.rglob("*.md"):
            if path not in self.kept:
                path.unlink()


def kinds_of(xml):  # name -> what Doxygen calls it
    kinds = {}
    for compound in tree.parse(xml / "index.xml").getroot():
        name = compound.find("name").text
        if compound.get("kind") in ("class", "struct", "concept") and name.startswith("acco::"):
            kinds[name[6:]] = compound.get("kind")
        elif compound.get("kind") == "namespace" and name == "acco":
            for member in compound.findall("member"):
                kinds.setdefault(member.find("name").text, member.get("kind"))
    return kinds


def readable(xml):  # for Sphinx: no lambdas as default values; for people: of what kind an optimizer is one
    for path in xml.glob("*.xml"):
        text = path.read_text(encoding="utf-8")
        plain = re.sub(r"<initializer>\s*=?\s*\[\].*?</initializer>", "", text, flags=re.S)
        plain = plain.replace("acco::any_optimizer&lt; float, float &gt;", "acco::any_optimizer&lt; Storage::parameter_type, Storage::gradient_type &gt;")
        if plain != text:
            path.write_text(plain, encoding="utf-8")


if __name__ == "__main__":
    readable(Path(sys.argv[3]))
    known = kinds_of(Path(sys.argv[3]))
    gone = [name for *_, names in REFERENCE for name in names if name not in known]
    if gone:
        sys.exit(f"docs/site/stage.py lists as public what the headers do not have: {', '.join(gone)}")
    Stage(Path(sys.argv[1]).resolve(), Path(sys.argv[2])).build(known)
