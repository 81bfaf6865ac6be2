"""What the verbs library exports, and whose functions programs get that load it by name, or with
objects of a real device."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.testbed.verbs.running import HERE, REAL, alone, compiled, needs_the_library, under_agent

pytestmark = needs_the_library()
OWN = {"dlopen"}
"""Exported without a version: it goes before the C library's."""
PRIVATE = "IBVERBS_PRIVATE"
"""Functions of these versions are between libibverbs and the drivers of real devices, whose objects
they take; but for one that programs call."""
TELLS = {"ibv_query_gid_type"}


def symbols(path: Path, defined: bool) -> set[tuple[str, str, bool]]:
    """(name, version, whether it is the default one) of each function that a file exports, or
    wants."""
    listed = subprocess.run(
        ("readelf", "--dyn-syms", "--wide", path), capture_output=True, text=True, check=True
    ).stdout
    found = set()
    for line in listed.splitlines():
        words = line.split()
        if (
            len(words) < 8
            or words[3] not in ("FUNC", "NOTYPE", "OBJECT")
            or (words[6] == "UND") is defined
            or words[6] == "ABS"
        ):
            continue
        name, at, version = words[7].partition("@")
        found.add((name, version.lstrip("@"), version.startswith("@") or not at))
    return found


def test_each_function_of_the_real_one_is_ours_in_the_same_version(library: Path) -> None:
    assert REAL is not None
    real, ours = symbols(REAL, True), symbols(library, True)
    assert len(real) > 150
    public = {
        (name, version)
        for name, version, _ in real
        if not version.startswith(PRIVATE) or name in TELLS
    }
    assert public - {(name, version) for name, version, _ in ours} == set()
    assert {name for name, version, _ in ours if (name, version) not in public} == OWN
    defaults = {name: version for name, version, default in real if default}
    for name, version, default in ours:
        if default and name in defaults:  # whom a program is linked against today
            assert version == defaults[name], name


def test_what_programs_want_of_the_private_ones_is_ours(library: Path) -> None:
    names = {name for name, _, _ in symbols(library, True)}
    users = [
        path for pattern in ("ib_*", "ibv_*", "ucx_*") for path in Path("/usr/bin").glob(pattern)
    ]
    users += [
        path
        for name in ("librdmacm.so.1", "libibumad.so.3", "libucs.so.0")
        for path in Path("/usr/lib").glob(f"*-linux-gnu/{name}")
    ]
    wanted = set()
    for path in users:
        if path.read_bytes()[:4] == b"\x7fELF":
            wanted |= {
                name for name, version, _ in symbols(path, False) if version.startswith(PRIVATE)
            }
    assert wanted <= names


def _exports() -> list[tuple[str, list[str]]]:
    """(version, functions) as exports.map has them."""
    text = re.sub(
        r"/\*.*?\*/",
        "",
        (HERE.parents[2] / "testbed/verbs/library/exports.map").read_text(),
        flags=re.DOTALL,
    )
    return [
        (version, re.findall(r"\b(\w+);", names))
        for version, names in re.findall(
            r"(\w[\w.]*) \{\s*global:(.*?)(?:local:[^}]*)?\}", text, re.DOTALL
        )
    ]


NO_OBJECT = re.compile(
    r"ibv_(copy_.*|get_sysfs_path|read_sysfs_file|rate_to_.*|.*_type_str|port_state_str|wc_status_str|fork_init|is_fork_initialized|"
    r"do.*fork_range|register_driver|get_device_list|import_device|get_device_name)|.*_to_ibv_rate"
)
"""They take none, or (get_device_name) need nobody else for it."""
DEVICES = {"ibv_get_device_guid", "ibv_get_device_index", "ibv_open_device"}
CONTEXTS = {
    "ibv_alloc_pd",
    "ibv_close_device",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_get_async_event",
    "ibv_get_pkey_index",
    "ibv_import_dm",
    "ibv_import_pd",
    "ibv_init_ah_from_wc",
    "ibv_query_device",
    "ibv_query_gid",
    "ibv_query_gid_type",
    "ibv_query_pkey",
    "ibv_query_port",
    "ibv_resolve_eth_l2_from_gid",
    "_ibv_query_gid_ex",
    "_ibv_query_gid_table",
}
EVENTS, LISTS = {"ibv_ack_async_event"}, {"ibv_free_device_list"}


def test_objects_of_a_real_device_go_to_the_real_library(library: Path, tmp_path: Path) -> None:
    """Instead of it stands one whose every function says its name and its six arguments."""
    functions = [name for _, names in _exports() for name in names]
    calls = [name for name in functions if not NO_OBJECT.fullmatch(name)]
    assert len(functions) == 77 and set(calls) > CONTEXTS | DEVICES
    text = "#include <stdio.h>\n" + "".join(
        f'long {name}(long a, long b, long c, long d, long e, long f);\n'
        f'long {name}(long a, long b, long c, long d, long e, long f) {{'
        f' printf("{name} %lx %lx %lx %lx %lx %lx\\n", a, b, c, d, e, f); return 77; }}\n'
        for name in functions
    )  # fmt: skip
    (tmp_path / "real.c").write_text(text)
    nodes = "".join(
        f"{version} {{ global: {' '.join(name + ';' for name in names)} }};\n"
        for version, names in _exports()
    )
    (tmp_path / "real.map").write_text(nodes)
    compiled(
        tmp_path / "real.c",
        tmp_path / "libibverbs.so.1",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libibverbs.so.1",
        f"-Wl,--version-script={tmp_path}/real.map",
    )
    kinds = [(DEVICES, "&device"), (CONTEXTS, "&context"), (EVENTS, "&event"), (LISTS, "list")]
    lines = []
    for name in calls:
        what = next((expression for names, expression in kinds if name in names), "&object")
        lines.append(
            f'    printf("want {name} %lx\\n", (long){what}), printf("is %ld\\n", '
            f"{name}((long){what}, 2, 3, 4, 5, 6));"
        )
    program = "#include <stdio.h>\n" + "".join(
        f"long {name}(long, long, long, long, long, long);\n" for name in calls
    )
    program += f"""
static struct {{ char zeros[4096]; }} device;
static struct {{ void *device; char zeros[4096]; }} context = {{.device = &device}};
static struct {{ void *context; char zeros[4096]; }} object = {{.context = &context}};
static struct {{ void *object; int type; char zeros[100]; }} event = {{.object = &object}};
static void *list[] = {{&device, 0}};
int main(void) {{
    for (event.type = 0; event.type < 22; event.type++)
        printf("%d ", event.type), ibv_ack_async_event((long)&event, 0, 0, 0, 0, 0);
    puts("--");
    event.type = 1;
{chr(10).join(lines)}
    return 0;
}}
"""
    (tmp_path / "program.c").write_text(program)
    built = compiled(
        tmp_path / "program.c",
        tmp_path / "program",
        str(tmp_path / "libibverbs.so.1"),
        f"-Wl,-rpath,{tmp_path}",
    )
    done = alone(built, library=library)
    assert (done.returncode, done.stderr) == (0, "")
    acknowledged, rest = done.stdout.split("--\n")
    # of the device, a port or a GID: nothing to tell anybody
    no_object = {8, 9, 10, 11, 12, 13, 17, 18}
    told = {int(kind) for kind in re.findall(r"(\d+) ibv_ack_async_event", acknowledged)}
    assert told == set(range(20)) - no_object
    for name, (want, said, gave) in zip(
        calls, zip(*[iter(rest.splitlines())] * 3, strict=True), strict=True
    ):
        assert want.split()[1] == said.split()[0] == name
        assert said.split()[1] == want.split()[2]
        if name not in LISTS | EVENTS:
            assert gave == "is 77", (said, gave)


def test_without_an_agent_it_is_as_if_it_were_not_there(library: Path, tmp_path: Path) -> None:
    """The installed library answers: where there is no RDMA device, with an empty list."""
    text = """
#include <infiniband/verbs.h>
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    int ours = 0;
    for (int i = 0; i < count; i++)
        ours += !__builtin_strcmp(ibv_get_device_name(list[i]), "mrcbed0");
    if (list)
        ibv_free_device_list(list);
    Dl_info where;
    void *handle = dlopen("libibverbs.so.1", RTLD_NOW), *found = handle ? dlvsym(handle, "ibv_open_device", "IBVERBS_1.1") : 0;
    printf("%d %s\\n", ours, found && dladdr(found, &where) ? where.dli_fname : "?");
    return list == 0 && count > 0;
}
"""  # noqa: E501
    (tmp_path / "program.c").write_text(text)
    done = alone(
        compiled(tmp_path / "program.c", tmp_path / "program", "-libverbs"), library=library
    )
    assert (done.returncode, done.stderr) == (0, "")
    ours, where = done.stdout.split()
    assert ours == "0" and Path(where).name == "libibverbs.so.1"
    done = alone("ls", "/", library=library)
    assert done.returncode == 0 and "proc" in done.stdout and not done.stderr


LOADS = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static const char *where(void *function) {
    Dl_info found;
    return function && dladdr(function, &found) ? strrchr(found.dli_fname, '/') + 1 : "nowhere";
}
void WHO(const char *own);
void WHO(const char *own) {
    const char *names[] = {"libibverbs.so.1", "libibverbs.so", REAL};
    for (int i = 0; i < 3; i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        printf("%s %s", handle ? "open" : dlerror(), where(dlsym(handle, "ibv_get_device_list")));
        printf(" %s", where(dlvsym(handle, "ibv_reg_mr", "IBVERBS_1.1")));
        printf(" %s", where(dlvsym(handle, "ibv_reg_mr", "IBVERBS_1.0")));
        printf(" %s\\n", where(dlvsym(handle, "ibv_query_gid_type", "IBVERBS_PRIVATE_34")));
    }
    void *handle = dlopen(own, RTLD_NOW);
    printf("%s\\n", handle ? "own" : dlerror());
    printf("%s\\n", dlopen("libnowhere.so", RTLD_NOW) ? "?" : dlerror());
    printf("%d\\n", dlopen(NULL, RTLD_NOW) != NULL);
}
"""


def test_who_loads_it_by_name_gets_ours(library: Path, tmp_path: Path) -> None:
    """From the program and from a library that it loaded for itself alone, each with a search path
    of its own that still holds."""
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.c").write_text(
            f"int {name}(void);\nint {name}(void) {{ return 1; }}\n"
        )
        compiled(tmp_path / f"{name}.c", tmp_path / name / f"lib{name}.so", "-shared", "-fPIC")
    (tmp_path / "loads.c").write_text(LOADS)
    define = f'-DREAL="{REAL}"'
    compiled(
        tmp_path / "loads.c",
        tmp_path / "plugin.so",
        "-shared",
        "-fPIC",
        "-DWHO=plugin",
        define,
        f"-Wl,--enable-new-dtags,-rpath,{tmp_path}/theirs",
    )
    main = """
int main(void) {
    program("libmine.so");
    void *handle = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    void (*plugin)(const char *) = (void (*)(const char *))dlsym(handle, "plugin");
    plugin("libtheirs.so");
    return 0;
}
"""
    (tmp_path / "program.c").write_text(LOADS + main)
    options = (
        "-DWHO=program",
        define,
        f'-DPLUGIN="{tmp_path}/plugin.so"',
        f"-Wl,--enable-new-dtags,-rpath,{tmp_path}/mine",
    )
    done = under_agent(
        compiled(tmp_path / "program.c", tmp_path / "program", *options), library=library
    )
    assert (done.returncode, done.stderr) == (0, "")
    missing = "libnowhere.so: cannot open shared object file: No such file or directory"
    each = [" ".join(["open", *[library.name] * 4])] * 3 + ["own", missing, "1"]
    assert done.stdout.splitlines() == each * 2
