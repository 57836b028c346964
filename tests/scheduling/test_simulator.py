"""The simulator behind the published figures: small replays whose outcome can be worked out by hand, and the formats it reads."""

from __future__ import annotations

import gzip
import xml.etree.ElementTree as ET
from functools import partial

import pytest

from benchmarks._figures import alone_s, figures, isolated_s, jain, percentile
from benchmarks._ledger import entitled
from benchmarks._plot import over_time, share_done, write_svg
from benchmarks._profiles import read_application
from benchmarks._simulator import POLICIES, simulate
from benchmarks._workload import Job, Workload, generated, philly, philly_30940, pollux
from benchmarks.simulate import measured_change_s
from training_runtime.scheduling.sizes import speed


def by_load(engines, placement):
    return speed(sum(placement), engines=engines) / engines


def a_job(number, person, *, at=0.0, slots=4, seconds=100.0, priority=5000):
    """A job that takes `seconds` on the slots it asks for."""
    return Job(number, f"job-{number}", person, at, slots, seconds, partial(by_load, slots), priority)


def four_slots(*jobs):
    return Workload("by hand", jobs, nodes=1, slots_per_node=4)


def test_first_come_first_served_makes_the_second_wait():
    outcome = simulate(four_slots(a_job(1, "alice"), a_job(2, "bob")), "static", change_s=0.0)
    assert outcome.ended_s == {1: 100.0, 2: 200.0}


def test_first_come_first_served_does_not_let_a_small_job_overtake():
    jobs = a_job(1, "alice", slots=2), a_job(2, "bob", slots=4), a_job(3, "carol", slots=1)
    assert simulate(four_slots(*jobs), "static", change_s=0.0).ended_s == {1: 100.0, 2: 200.0, 3: 300.0}


def test_fair_share_gives_both_half():
    outcome = simulate(four_slots(a_job(1, "alice"), a_job(2, "bob")), "fair_share", change_s=0.0)
    assert outcome.ended_s == {1: pytest.approx(200.0), 2: pytest.approx(200.0)}


def test_a_newcomer_takes_half_from_its_arrival_on():
    outcome = simulate(four_slots(a_job(1, "alice"), a_job(2, "bob", at=50.0, seconds=25.0)), "fair_share", change_s=0.0)
    assert outcome.ended_s == {2: pytest.approx(100.0), 1: pytest.approx(125.0)}


def test_priority_serves_the_higher_first():
    outcome = simulate(four_slots(a_job(1, "alice"), a_job(2, "bob", at=50.0, priority=6000)), "priority", change_s=0.0)
    assert outcome.ended_s == {2: pytest.approx(150.0), 1: pytest.approx(200.0)}


def test_tiresias_prefers_jobs_with_little_service():
    long, short = a_job(1, "alice", seconds=30_000.0), a_job(2, "bob", at=20_000.0)
    outcome = simulate(four_slots(long, short), "tiresias", change_s=0.0)
    assert outcome.ended_s == {2: pytest.approx(20_100.0), 1: pytest.approx(30_100.0)}


def test_every_change_of_members_costs_its_time():
    """Alice starts (1 s), gives half away (1 s) and gets it back (1 s); the slots she held meanwhile did no work."""
    outcome = simulate(four_slots(a_job(1, "alice"), a_job(2, "bob", at=51.0, seconds=25.0)), "fair_share", change_s=1.0)
    assert outcome.ended_s[2] == pytest.approx(51 + 1 + 50)
    assert outcome.ended_s[1] == pytest.approx(102 + 1 + 25)
    assert outcome.ledger.lost == 4 + 2 + 2 + 4


def test_decisions_can_be_taken_together_at_intervals():
    jobs = [a_job(number, "alice", at=float(number), slots=1, seconds=5.0) for number in range(20)]
    together = simulate(four_slots(*jobs), "fair_share", change_s=0.0, every_s=10.0)
    assert together.decisions < simulate(four_slots(*jobs), "fair_share", change_s=0.0).decisions
    assert set(together.ended_s) == set(range(20))


@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_generated_workload_ends_and_its_figures_are_sound(policy):
    workload = generated(3, jobs=40, nodes=4, slots_per_node=4, people=5, load=1.5)
    made = figures(simulate(workload, policy, change_s=0.1))
    assert 0 < made.busy_share <= 1
    assert 0 < made.jain <= 1
    assert made.avg_jct_h * 3600 >= sum(alone_s(job, 4) for job in workload.jobs) / 40 * 0.999
    assert made.p99_jct_h <= made.makespan_h


def test_fair_share_is_fairer_than_taking_turns_as_they_come():
    workload = generated(3, jobs=40, nodes=4, slots_per_node=4, people=5, load=1.5)
    static, fair = (figures(simulate(workload, policy, change_s=0.1)) for policy in ("static", "fair_share"))
    assert fair.jain > max(static.jain, 0.97)
    assert fair.ftf_under_2_share > static.ftf_under_2_share
    assert fair.realloc_loss_share < 0.001


def test_the_same_seed_generates_the_same_workload():
    first, second, other = (generated(seed, jobs=20, nodes=2, slots_per_node=4, people=3).jobs for seed in (1, 1, 2))
    assert [(job.person, job.submitted_s, job.work) for job in first] == [(job.person, job.submitted_s, job.work) for job in second]
    assert [job.work for job in first] != [job.work for job in other]


def test_equal_parts_leave_to_others_what_one_cannot_use():
    assert entitled({"alice": 1, "bob": 10, "carol": 10}, 9) == {"alice": 1.0, "bob": 4.0, "carol": 4.0}


def test_jains_index_is_one_for_equal_and_one_nth_for_all_to_one():
    assert jain([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


def test_percentiles_lie_between_the_ranks():
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([0.0, 10.0], 0.99) == pytest.approx(9.9)


def test_finish_time_fairness_compares_with_an_own_part_of_the_cluster():
    outcome = simulate(four_slots(a_job(1, "alice"), a_job(2, "bob")), "fair_share", change_s=0.0)
    assert isolated_s(outcome.workload.jobs[0], outcome) == pytest.approx(200.0)
    assert figures(outcome).ftf_max == pytest.approx(1.0)


@pytest.fixture
def traces(tmp_path):
    """A folder in the format of the real traces: one application, two jobs, three rows of the large trace."""
    profile = tmp_path / "profiles" / "cifar10"
    profile.mkdir(parents=True)
    header = "placement,local_bsz,step_time,sync_time\n"
    measured = [(where, size, sync) for where, sync in (("1", 0.0), ("2", 0.1), ("12", 0.3)) for size in (10, 20)]
    rows = "".join(f"{where},{size},{size / 100 + sync},{sync}\n" for where, size, sync in measured)
    (profile / "placements.csv").write_text(header + rows)
    (profile / "scalability.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,10,1.1,1.0\n6,6,20,1.2,1.0\n")
    (profile / "validation-40.csv").write_text("progress,iteration,metric,grad_sqr,grad_var\n1,50,0,0,0\n2,100,0,0,0\n")
    jobs = "name,time,application,num_replicas,batch_size\ncifar10-0,5,cifar10,2,40\ncifar10-1,6,cifar10,2,40\n"
    (tmp_path / "philly-8h-1.csv").write_text(jobs)
    with gzip.open(tmp_path / "philly-30940-jobs.csv.gz", "wt") as file:
        file.write("job_id,user,num_gpu,submit_time,duration\n1,vc_b,0,1,5\n2,vc_a,4,9,60\n3,vc_b,1,3,30\n")
    return tmp_path


def test_a_profile_gives_the_time_of_a_step_at_any_number_of_workers(traces):
    profile = read_application(traces / "profiles" / "cifar10")
    assert profile.iterations == {40: 100.0}
    assert profile.step_s((1, 1), batch=20, engines=2) == pytest.approx(1.1), "the nearest measured spread where none fits"
    assert profile.step_s((2,), batch=30, engines=2) == pytest.approx(0.15 + 0.1)
    assert profile.step_s((1,), batch=30, engines=2) == pytest.approx(2 * 0.15), "one worker computes both engines"
    assert profile.step_s((1,), batch=80, engines=2) == pytest.approx(4 * 0.20), "an engine too large for memory takes several passes"
    assert profile.step_s((2, 1), batch=30, engines=3) == profile.step_s((1, 2), batch=30, engines=3) == pytest.approx(0.1 + 0.3)


def test_the_formats_of_the_real_traces_are_read(traces):
    small = philly(traces, 1, people=1)
    assert [(job.name, job.person, job.submitted_s, job.slots, job.work) for job in small.jobs] == [
        ("cifar10-0", "person-0", 5.0, 2, 100.0),
        ("cifar10-1", "person-0", 6.0, 2, 100.0),
    ]
    large = philly_30940(traces, nodes=1, slots_per_node=4)
    assert [(job.id, job.person, job.submitted_s, job.slots) for job in large.jobs] == [(3, "vc_b", 3.0, 1), (2, "vc_a", 9.0, 4)]
    assert simulate(large, "fair_share", change_s=0.0).ended_s[3] == pytest.approx(33.0)


def test_the_workloads_of_pollux_keep_its_limit_of_samples_in_one_pass(traces):
    (traces / "profiles" / "cifar10").rename(traces / "profiles" / "yolov3")
    small = (traces / "profiles" / "yolov3" / "placements.csv").read_text().replace(",10,", ",8,").replace(",20,", ",16,")
    (traces / "profiles" / "yolov3" / "placements.csv").write_text(small)
    jobs = "name,time,application,num_replicas,batch_size\nyolov3-0,5,yolov3,2,40\n"
    for name in ("philly-8h-2.csv", "workload-2.csv"):
        (traces / name).write_text(jobs)
    (free,), (held,) = philly(traces, 2, people=1).jobs, pollux(traces / "profiles", traces, 2, people=1).jobs
    assert free.work == held.work
    assert (1 / free.rate((2,)), 1 / held.rate((2,))) == (pytest.approx(2 * 0.125 + 0.1), pytest.approx(3 * 0.1 + 0.1))


def test_a_change_costs_the_longest_pause_that_was_measured():
    assert 0.01 < measured_change_s() < 5


def test_the_picture_is_sound_svg(tmp_path):
    path = tmp_path / "picture.svg"
    write_svg(path, [share_done("Done", {"fair <share>": [0.1, 2.0]}), over_time("Held", "slots", {"static": [(0.0, 4.0), (1.0, 2.0)]})])
    assert ET.parse(path).getroot().tag.endswith("svg")
