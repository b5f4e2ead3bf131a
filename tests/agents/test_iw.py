import json
from importlib import resources

import pytest
from tests.agents.conftest import ENV, Place

UTILITIES = ("sh", "cat", "tr", "sed", "awk", "printf")
TRANSPORTS = ("curl", "python3", "node")
TOOLS = ENV["IW_URL"]


class Factory:
    """Answers as it was told to and keeps what it was asked."""

    def __init__(self, status: int = 200, text: bytes = b"well") -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.status = status
        self.text = text

    async def __call__(self, verb: str, body: bytes) -> tuple[int, bytes]:
        self.asked.append((verb, body))
        return self.status, self.text


@pytest.fixture(params=TRANSPORTS)
async def iw(request: pytest.FixtureRequest, place: Place) -> "Tool":
    """The program in a sandbox that has only one of the transports."""
    folder = "/tmp/only"
    names = " ".join((*UTILITIES, request.param))
    await place.sh(f"mkdir {folder}; for p in {names}; do ln -s $(command -v $p) {folder}; done")
    if not (await place.sh(f"{folder}/{request.param} --version && echo there")).strip().endswith("there"):
        pytest.skip(f"needs {request.param} in the sandbox")
    return await Tool.placed(place, {"PATH": folder, "IW_URL": TOOLS})


class Tool:
    def __init__(self, place: Place, env: dict[str, str]) -> None:
        self.place = place
        self.env = env

    @classmethod
    async def placed(cls, place: Place, env: dict[str, str]) -> "Tool":
        program = resources.files("ironworks.agents").joinpath("iw").read_bytes()
        await place.sandbox.put("/run/ironworks/bin/iw", program, mode=0o755)
        return cls(place, env)

    def connected(self, status: int = 200, text: bytes = b"well") -> Factory:
        factory = Factory(status, text)
        self.place.connect(tools=factory)
        return factory

    async def __call__(self, *args: str, stdin: bytes = b"", **env: str) -> tuple[int | None, str, str]:
        """Exit code, stdout, stderr."""
        result = await self.place.sandbox.exec(
            ["/run/ironworks/bin/iw", *args],
            stdin=stdin,
            env={**self.env, "http_proxy": "http://127.0.0.1:1", **env},
            timeout_s=60,
        )
        return result.exit_code, result.stdout.decode(), result.stderr.decode()


@pytest.mark.spec("AG-13")
async def test_every_transport_brings_the_answer_and_its_meaning(iw: Tool) -> None:
    factory = iw.connected(200, "nothing fails newly\n\nä\n".encode())
    assert await iw("check") == (0, "nothing fails newly\n\nä\n\n", "")
    factory.status, factory.text = 422, b"test_x fails"
    assert await iw("check") == (1, "test_x fails\n", "")
    factory.status, factory.text = 200, b""
    assert await iw("schema") == (0, "\n", "")
    assert [verb for verb, _ in factory.asked] == ["check", "check", "schema"]


@pytest.mark.spec("AG-13")
@pytest.mark.parametrize(
    "question",
    ["why?", 'a "quoted" \\ back\\n\tslash', "two\nlines\n\nand ü 🙂", "-n", "%s $HOME `id`", "x" * 100_000],
)
async def test_a_question_arrives_as_it_was_put(iw: Tool, question: str) -> None:
    factory = iw.connected(200, b"noted")
    assert await iw("ask", question) == (0, "noted\n", "")
    assert json.loads(factory.asked[0][1]) == {"question": question}


@pytest.mark.spec("AG-13")
async def test_a_handoff_is_sent_and_left_where_the_factory_looks(iw: Tool) -> None:
    factory = iw.connected()
    data = json.dumps({"summary": "ü\n" * 5000, "x": "%s \\ "}, ensure_ascii=False).encode() + b"\n"
    await iw.place.sandbox.put("/work/a b.json", data)
    assert (await iw("handoff", "a b.json", IRONWORKS_HANDOFF="/tmp/out"))[0] == 0
    assert (await iw("handoff", "-", stdin=data, IRONWORKS_HANDOFF="/tmp/out2"))[0] == 0
    assert factory.asked == [("handoff", data)] * 2
    assert await iw.place.sandbox.get("/tmp/out", max_bytes=100_000) == data
    assert await iw.place.sandbox.get("/tmp/out2", max_bytes=100_000) == data


@pytest.mark.spec("AG-13")
async def test_a_refused_handoff_is_not_left(iw: Tool) -> None:
    iw.connected(422, b"summary: Field required")
    code, text, _ = await iw("handoff", "-", stdin=b"{}", IRONWORKS_HANDOFF="/tmp/out")
    assert (code, text) == (1, "summary: Field required\n")
    assert "there" not in await iw.place.sh("test -e /tmp/out && echo there")


@pytest.mark.spec("AG-13")
async def test_no_answer_is_told_from_a_bad_one(iw: Tool) -> None:
    code, _, words = await iw("check", IW_URL="http://127.0.0.1:1/tools")
    assert code == 3
    assert words


async def test_without_a_factory_a_handoff_is_still_left(place: Place) -> None:
    iw = await Tool.placed(place, {"IW_URL": ""})
    assert (await iw("handoff", "-", stdin=b"{}", IRONWORKS_HANDOFF="/tmp/out"))[0] == 0
    assert await place.sandbox.get("/tmp/out", max_bytes=10) == b"{}"
    assert (await iw("check"))[0] == 3


async def test_without_any_transport_it_says_what_it_needs(place: Place) -> None:
    await place.sh("mkdir /tmp/none; ln -s $(command -v sh) $(command -v cat) /tmp/none")
    iw = await Tool.placed(place, {"IW_URL": TOOLS, "PATH": "/tmp/none"})
    code, _, words = await iw("check")
    assert (code, words) == (3, "iw: needs curl, python3 or node\n")


@pytest.mark.parametrize(
    "args", [(), ("check", "x"), ("ask",), ("ask", "a", "b"), ("handoff",), ("merge",), ("--help",)]
)
async def test_wrong_use_shows_the_usage(place: Place, args: tuple[str, ...]) -> None:
    iw = await Tool.placed(place, {"IW_URL": TOOLS})
    code, _, words = await iw(*args)
    assert code == 2
    assert words.startswith("usage: iw check")


async def test_documentation_is_said_to_be_missing(place: Place) -> None:
    iw = await Tool.placed(place, {"IW_URL": TOOLS})
    assert await iw("docs", "search", "x") == (2, "", "iw: documentation is not available yet\n")


async def test_a_handoff_file_that_is_missing_is_wrong_use(place: Place) -> None:
    iw = await Tool.placed(place, {"IW_URL": TOOLS})
    assert await iw("handoff", "nowhere.json") == (2, "", "iw: there is no file nowhere.json\n")
