# SPDX-License-Identifier: Apache-2.0
# names.py ROOT: the module exports every public name (docs/site/stage.py), and every name that a page or an example writes,
# but those of components, which it lists; and no other.
import re
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(root / "docs/site"))
sys.dont_write_bytecode = True
import stage  # noqa: E402

public = {name for _, _, _, names in stage.REFERENCE for name in names}
pages = [root / "README.md", *(root / "docs").glob("*.md"), *(root / "examples").rglob("*.[hc]pp")]
targets = set(re.search(r"ACCO_COMPONENTS ([a-z ]+)", (root / "cmake/components.cmake").read_text(encoding="utf-8")).group(1).split())
targets |= {"acco", "attach", "c", "compiled", "module", "checkpoint_needs_nlohmann_json_and_xxHash_found_before_acco"}  # of CMake; a namespace
written = {name for page in pages for name in re.findall(r"\bacco::(\w+)", page.read_text(encoding="utf-8"))} - (targets - public)
text = (root / "modules/acco.cppm").read_text(encoding="utf-8")
exported = set(re.findall(r"^using acco::(\w+);$", text, re.M))
components = {name for line in re.findall(r"^// components: (.*)$", text, re.M) for name in line.split()}

wanted = public | written
for what, names in (("is missing", wanted - exported - components), ("is exported, and is neither public nor written anywhere", exported - wanted),
                    ("is said to be a component's, and is neither public nor written anywhere", components - wanted),
                    ("is exported, and said to be a component's", exported & components)):
    for name in sorted(names):
        print(f"modules/acco.cppm: {name} {what}")
print(f"{len(exported)} names exported, {len(components)} of components")
sys.exit(not exported or exported | components != wanted or bool(exported & components))
