from __future__ import annotations

from xml.etree import ElementTree

from climb.report.accuracy_section import WRITTEN, heat_map


def cells(matrix: list[list[float]]) -> list[ElementTree.Element]:
    return ElementTree.fromstring(heat_map(matrix, title="accuracy")).findall("g")


def test_cells_have_titles_and_values() -> None:
    found = cells([[50.0, 10.0], [40.0, 80.0]])
    assert [cell.findtext("title") for cell in found] == [
        "after task 1, on task 1: 50.0 %",
        "after task 1, on task 2: 10.0 %",
        "after task 2, on task 1: 40.0 %",
        "after task 2, on task 2: 80.0 %",
    ]
    assert [cell.findtext("text") for cell in found] == ["50", "10", "40", "80"]


def test_colour_follows_the_value_and_text_stays_readable() -> None:
    found = cells([[50.0, 10.0], [40.0, 80.0]])
    shades = [float(cell.find("rect").attrib["fill-opacity"]) for cell in found]  # type: ignore[union-attr]
    assert shades == [0.625, 0.125, 0.5, 1.0]
    texts = [cell.find("text").attrib["class"] for cell in found]  # type: ignore[union-attr]
    assert texts == ["value", "value", "value", "value strong"]


def test_rows_go_down_columns_go_right_diagonal_is_outlined() -> None:
    rects = [cell.find("rect") for cell in cells([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])]
    places = [(float(rect.attrib["x"]), float(rect.attrib["y"])) for rect in rects if rect is not None]
    assert places[0][1] == places[1][1] < places[3][1]
    assert places[0][0] == places[3][0] < places[1][0]
    outlined = [n for n, rect in enumerate(rects) if rect is not None and "learned" in rect.attrib["class"]]
    assert outlined == [0, 4]


def test_cells_of_many_tasks_show_no_values() -> None:
    tasks = WRITTEN + 1
    svg = ElementTree.fromstring(heat_map([[1.0] * tasks] * tasks, title="accuracy"))
    assert len(svg.findall("g/title")) == tasks**2
    assert not svg.findall("g/text")
    assert [text.text for text in svg.findall("text")][:3] == ["1", "3", "5"]


def test_zeros_can_be_drawn() -> None:
    assert [cell.findtext("text") for cell in cells([[0.0]])] == ["0"]
