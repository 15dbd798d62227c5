import time

import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning.threads import side_by_side


def test_results_come_in_the_order_of_the_items_and_nobody_shares_a_tool():
    used = []

    def work(tool, item):
        used.append(tool)
        assert not tool["busy"]
        tool["busy"] = True
        time.sleep(0.01 * (item % 3))
        tool["busy"] = False
        return item

    tools = [{"busy": False} for _ in range(3)]
    assert list(side_by_side(work, tools, range(12))) == list(range(12))
    assert len(used) == 12


def test_every_call_has_its_share_of_the_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert set(side_by_side(lambda tool, item: torch.get_num_threads(), [0, 1], range(6))) == {2}
        assert set(side_by_side(lambda tool, item: torch.get_num_threads(), list(range(5)), range(6))) == {1}
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_few_results_wait():
    begun = []
    taking = side_by_side(lambda tool, item: begun.append(item), [0, 1], range(100))
    next(taking)
    time.sleep(0.05)
    assert len(begun) <= 5
    taking.close()


def test_an_error_comes_through_and_the_threads_are_as_before():
    before = torch.get_num_threads()

    def work(tool, item):
        if item == 3:
            raise ValueError("the third")
        return item

    with pytest.raises(ValueError, match="the third"):
        list(side_by_side(work, [0, 1], range(50)))
    assert torch.get_num_threads() == before
