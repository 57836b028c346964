"""Our JavaScript, module by module: what its functions answer, in the browser that people have, with no page and no studio around them.

Where the server computes the same (a figure, a length of time, the lists of a command, a log on a terminal), the server's answer is what is
expected.
"""

from __future__ import annotations

import hashlib
import random
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from experiments.errors import DomainError
from experiments.logs.terminal import render_screen
from experiments.selectors import run_pages
from experiments.services.grid import expanded
from experiments.templatetags import studio
from tests.architecture.source import ROOT

AT = "http://modules.test"
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """An empty page of an address at which the modules are."""

    def module(route: Route) -> None:
        name = route.request.url.removeprefix(f"{AT}/")
        body = (ROOT / "static/js" / name).read_text() if name.endswith(".js") else ""
        route.fulfill(body=body, content_type="text/javascript" if name.endswith(".js") else "text/html")

    page = browser.new_page(timezone_id="UTC")
    page.route(f"{AT}/**", module)
    page.goto(f"{AT}/")
    yield page
    page.close()


@pytest.fixture
def call(page: Page) -> Call:
    """`call("chart.js", "figure", 0.5)`: what a function answers; `call("curves.js", "(m, a) => ...", a)`: what an expression makes
    of it."""

    def call(module: str, what: str, *arguments: Any) -> Any:
        function = what if "=>" in what else f"(m, ...given) => m.{what}(...given)"
        return page.evaluate(f"async given => ({function})(await import('/{module}'), ...given)", list(arguments))

    return call


def test_a_figure_is_written_as_the_server_writes_it(call: Call) -> None:
    draw = random.Random(5)
    numbers = [0.0, 1.0, -2.0, 0.001, 0.00099996, 999.96, 1e6, 123456.0, 1e-30, 3.4e38]
    numbers += [draw.choice((-1, 1)) * draw.uniform(1, 10) * 10 ** draw.uniform(-9, 12) for _ in range(300)]
    written = call("chart.js", "(m, numbers) => numbers.map(m.figure)", numbers)
    assert written == [studio.value(number) for number in numbers]
    assert call("chart.js", "figure", None) == studio.value(float("nan"))


FIRST = (
    "(m, sets) => sets.map((groups) => { const c = new m.Curves(); for (const [n, g] of groups) c.byName.set(n, g); return c.first(); })"
)


def test_the_charts_that_come_first_are_those_that_the_server_puts_first(call: Call) -> None:
    draw = random.Random(5)
    names = [
        "loss",
        "accuracy",
        "eval_loss",
        "val/loss",
        "train_loss",
        "train/loss",
        "val_acc",
        "Accuracy",
        "lr",
        "mfu",
        "loss_D",
        "glossy",
        "reward_std",
        "ep_rew_mean",
    ]
    kinds = [{"train"}, {"test"}, {"train", "test"}]
    sets = [{name: draw.choice(kinds) for name in draw.sample(names, draw.randrange(len(names)))} for _ in range(300)]
    found = call("curves.js", FIRST, [[[name, dict.fromkeys(groups, True)] for name, groups in each.items()] for each in sets])
    assert found == [run_pages.first_charts(each) for each in sets]


def test_a_length_of_time_is_spelled_as_the_server_spells_it(call: Call) -> None:
    lengths = [0, 1, 59, 60, 61, 3599, 3600, 7265, 172_799, 172_800, 10_000_000]
    assert call("times.js", "(m, lengths) => lengths.map(m.spell)", lengths) == [studio.spell(length) for length in lengths]


def test_a_smoothed_curve_begins_at_its_first_value_and_keeps_its_gaps(call: Call) -> None:
    assert call("chart.js", "smooth", [4, None, 4, 4], 0.9) == pytest.approx([4, None, 4, 4])
    assert call("chart.js", "smooth", [0, 1], 0.5) == pytest.approx([0, 2 / 3])
    assert call("chart.js", "smooth", [3, 1], 0) == [3, 1]


def test_a_value_between_gaps_is_a_point(call: Call) -> None:
    alone = "(m, values) => m.alone({data: [[], values]}, 1, false)"
    assert call("chart.js", alone, [1, None, 2, 3, None, 4]) == [0, 5]
    assert call("chart.js", alone, [1, 2, 3]) is None


def test_the_digest_of_a_file_is_that_of_hashlib_whatever_pieces_it_comes_in(call: Call) -> None:
    draw = random.Random(7)
    for length in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000):
        data, sizes = draw.randbytes(length), [draw.randrange(1, 100) for _ in range(40)]
        fed = call(
            "sha256.js",
            """(m, data, sizes) => {
                const digest = new m.Sha256();
                for (let at = 0, i = 0; at < data.length; at += sizes[i], i = (i + 1) % sizes.length)
                    digest.update(Uint8Array.from(data.slice(at, at + sizes[i])));
                return digest.digest();
            }""",
            list(data),
            sizes,
        )
        assert fed == hashlib.sha256(data).hexdigest(), length


COMMANDS = (
    "main.py",
    "main.py --lr {0.1,0.3,1.0}",
    "main.py --lr {0.1,0.3} --note 'a {b,c} d' --opt {sgd,adam}",
    'main.py --name "x, y" --size {1,2}',
    "main.py --layers {64}",
    r"main.py --set \{1,2} --lr {1,2}",
    "main.py --words {'a, b',c}",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_counts_the_runs_that_the_server_makes_of_a_command(command: str, call: Call) -> None:
    assert call("grid.js", "count", command) == len(expanded(command))


def test_a_command_is_taken_apart_as_a_shell_does_it(call: Call) -> None:
    for command in ("main.py --name 'a b' x", r'main.py "say \"hi\"" a\ b', "  a   b  ", "--empty ''"):
        assert call("grid.js", "split", command) == shlex.split(command), command
    assert call("grid.js", "split", "main.py 'open") is None


@pytest.mark.parametrize("typed", ["0.1", "0.1, 0.3, 1.0", '"a, b"', "sgd, 'a, b', adam", "it's"])
def test_what_is_typed_in_a_field_comes_back_and_makes_as_many_runs(typed: str, call: Call) -> None:
    word = call("grid.js", "fromField", typed)
    again = call("grid.js", "(m, word) => m.fromField(m.toField(word))", word)
    assert again == word
    command = f"main.py --x {call('grid.js', 'quoted', word)}"
    try:
        runs = len(expanded(command))
    except DomainError as refused:
        raise AssertionError(command) from refused
    assert call("grid.js", "count", command) == runs == len([part for part in ("sgd", "0.3") if part in typed]) * 2 + 1


def test_a_log_stands_as_on_a_terminal_whatever_pieces_it_comes_in(call: Call) -> None:
    draw = random.Random(11)
    parts = ["epoch 1\n", "\r 10%|#   |", "\r 50%|##  |", "\x1b[A", "\x1b[B", "\x1b[K", "\x1b[31mred\x1b[0m", "\r\n", "done", "\n"]
    parts += ["\b\b", "\b" * 9, "x"]
    for _ in range(40):
        text = "".join(draw.choice(parts) for _ in range(draw.randrange(1, 12)))
        seen = call("terminal.js", "(m, text) => m.write([''], 0, text)", text)
        assert ("\n".join(row.rstrip(" ") for row in seen["rows"]), seen["up"]) == (render_screen(text).text, render_screen(text).up), repr(
            text
        )


AXIS = {"name": "lr", "kind": "number", "values": [0.001, None, 0.1, 10]}


def test_a_place_on_an_axis_leads_back_to_its_value(call: Call) -> None:
    back = "(m, axis, log, values) => { const s = new m.Scale(axis, log); return values.map((v) => s.at(s.fraction(v))); }"
    for logarithmic in (True, False):
        assert call("scale.js", back, AXIS, logarithmic, [0.001, 0.1, 5, 10]) == pytest.approx([0.001, 0.1, 5, 10])


def test_a_logarithmic_scale_is_offered_for_positive_values_alone_and_usual_from_two_decades_on(call: Call) -> None:
    said = "(m, axis) => { const s = new m.Scale(axis, null); return [s.mayBeLogarithmic, s.logarithmic]; }"
    assert call("scale.js", said, AXIS) == [True, True]
    assert call("scale.js", said, AXIS | {"values": [1, 5]}) == [True, False]
    for values in ([-1, 100], [0, 100], [3, 3]):
        assert call("scale.js", said, AXIS | {"values": values}) == [False, False]


def test_ends_of_a_range_move_from_value_to_value_and_stop_at_the_last(call: Call) -> None:
    moved = "(m, axis, from, by) => new m.Scale(axis, null).step(from, by)"
    assert [call("scale.js", moved, AXIS, *step) for step in ((0.001, 1), (0.1, 1), (10, 1), (0.1, -1), (0.05, 1), (0.001, 9))] == [
        *(0.1, 10, 10, 0.001, 0.1, 10)
    ]


def test_a_group_has_least_mean_and_greatest_where_any_of_it_has_a_value(call: Call) -> None:
    assert call("groups.js", "together", [[1, None, 2], [3, None, None]]) == [[1, None, 2], [2, None, 2], [3, None, 2]]


def curves(call: Call, then: str, *given: Any) -> Any:
    """`then` of a run's curves: five steps of a training loss, a second apart from t = 100, on batches of 4, three steps and 10 samples an
    epoch."""
    curve = {"group": "train", "name": "loss", "steps": [1, 2, 3, 4, 5], "times": [100, 101, 102, 103, 104], "values": [5, 4, 3, 2, 1]}
    shape = {"batch": 4, "steps_per_epoch": 3, "samples": 10}
    marks = [
        {"step": 1, "t": 100, "workers": 2, "before": 0, "reason": "start", "pause_ms": 0, "redone": 0},
        {"step": 3, "t": 102, "workers": 4, "before": 2, "reason": "grow", "pause_ms": 21.6, "redone": 1},
    ]
    answer = {"curves": [{**curve, "sampled": False}], "marks": marks, "shape": shape}
    return call(
        "curves.js",
        f"(m, answer, ...given) => {{ const c = new m.Curves(); c.take(answer); return ({then})(c, ...given); }}",
        answer,
        *given,
    )


def test_the_last_step_of_an_epoch_may_have_fewer_samples(call: Call) -> None:
    assert [curves(call, "(c, step) => c.samplesAt(step)", step) for step in (1, 2, 3, 4, 6)] == [4, 8, 10, 14, 20]


def test_a_step_that_was_done_again_keeps_its_first_value(call: Call) -> None:
    points = [["train", "loss", 5, 105, 9.0], ["train", "loss", 6, 106, 0.5]]
    steps, values = curves(call, "(c, points) => { c.add(points, 99); const l = c.longest(); return [l.steps, l.values]; }", points)
    assert (steps, values) == ([1, 2, 3, 4, 5, 6], [5, 4, 3, 2, 1, 0.5])
    assert curves(call, "(c, points) => c.add(points, 5)", points) is True, "too long: it should be fetched anew"


def test_finer_points_take_the_place_of_those_between_the_same_steps(call: Call) -> None:
    finer = {"curves": [{"group": "train", "name": "loss", "steps": [2, 3], "times": [101, 102], "values": [40, 30]}]}
    assert curves(call, "(c, finer) => { c.refine(finer, [2, 4]); return c.longest().values; }", finer) == [5, 40, 30, 1]


def test_resizes_are_marked_but_the_first(call: Call) -> None:
    (mark,) = curves(call, "(c) => c.changes('samples')")
    assert mark == {"at": 10, "label": "2→4", "title": "2 → 4 workers: grow; 22 ms pause, 1 step redone"}
    assert curves(call, "(c) => c.workers('step')") == [[1, 3, 5], [2, 4, 4]]
    assert curves(call, "(c) => c.rates('step')[1]") == [1, 1, 1, 1]


def test_a_moment_lies_between_the_steps_around_it(call: Call) -> None:
    assert [curves(call, "(c, t) => c.moment(t, 'step')", t) for t in (99, 100, 102.5, 104, 105)] == [None, 1, 3.5, 5, None]


def test_lines_of_one_colour_have_dashes_unless_they_are_too_many(call: Call) -> None:
    dashes = "(m, inks) => m.dashes(inks.map((ink) => ({ ink })))"
    few = call("overlay.js", dashes, ["red", "blue", "red"])
    assert few[0] == few[1] == []
    assert few[2]
    assert not any(call("overlay.js", dashes, ["red"] * 40))


def test_several_runs_share_one_answer_and_the_first_is_on_its_way_already(page: Page) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url.removeprefix(AT))
        route.fulfill(json={"metrics": ["train loss"], "runs": [{"run": run, "curves": []} for run in (7, 8)]})

    page.route(f"{AT}/series*", answer)
    found = page.evaluate(
        """async () => {
            const { Answers } = await import('/answers.js');
            const answers = new Answers('/series', () => ['train loss'], '/series?first=1');
            const both = await Promise.all([answers.of(7), answers.of(8)]);
            const gone = await answers.of(9).then(() => 'there', (error) => error.message);
            return [both.map((each) => each.run), answers.metrics, gone];
        }"""
    )
    assert found == [[7, 8], ["train loss"], "nothing of run 9"]
    assert asked == ["/series?first=1", "/series?run=9&metric=train+loss"]


def test_the_lines_that_several_runs_have_reached_are_one_answer_without_curves(page: Page) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url.removeprefix(AT))
        route.fulfill(json={"metrics": ["train loss"], "runs": [{"run": run, "seq": 10 * run, "curves": []} for run in (7, 8)]})

    page.route(f"{AT}/series*", answer)
    found = page.evaluate(
        """async () => {
            const { Answers } = await import('/answers.js');
            const answers = new Answers('/series', () => ['train loss'], '/series?first=1');
            const gone = (error) => error.message;
            return Promise.all([7, 8, 9].map((run) => answers.line(run).catch(gone)));
        }"""
    )
    assert found == [70, 80, "nothing of run 9"]
    assert asked == ["/series?run=7%2C8%2C9&metric="]


def test_what_a_sent_file_holds_is_called_by_its_name_without_the_ending(call: Call) -> None:
    sent = ["a.zip", "b.tar.gz", "c.py", "d.modelDir.tar", "e.tgz", "f.txt"]
    assert call("sending.js", "(m, names) => names.map(m.plain)", sent) == ["a", "b", "c", "d", "e", "f.txt"]


def test_who_follows_a_run_after_the_page_was_subscribed_to_it_asks_what_it_has_missed(page: Page, call: Call) -> None:
    page.route_web_socket("**/ws/", lambda socket: socket.on_message(lambda _: socket.send('{"type": "subscribed", "topics": ["run-7"]}')))
    page.evaluate("document.body.innerHTML = '<main data-topics=\"run-7\"></main>'")
    subscribed = "m => { m.start(); return new Promise(resolve => m.on('subscribed', resolve)); }"
    assert call("live.js", subscribed) == {"type": "subscribed", "topics": ["run-7"]}
    page_of = "{load: async () => 3, points: '/none', add: () => false, line: async () => resolve('it asks')}"
    assert call("points.js", f"m => new Promise(resolve => m.follow(7, {page_of}))") == "it asks"
