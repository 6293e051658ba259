import TestSupport
import Testing

@testable import Console

@Suite(.within(minutes: 5)) struct TableTests {
    private func table() -> Table {
        var table = Table([.number("OFFSET"), .text("NAME"), .text("VALUE", canBeCut: true)])
        table.add(["7", "a", "short"])
        table.add(["12345678", "bé", "a value that is rather long"])
        return table
    }

    @Test func `aligns text left and numbers right`() {
        #expect(
            table().lines(width: nil) == [
                "  OFFSET  NAME  VALUE",
                "       7  a     short",
                "12345678  bé    a value that is rather long",
            ])
    }

    @Test func `cuts only on a screen, and only what may be cut`() {
        #expect(table().lines(width: 30).last == "12345678  bé    a value that …")
        #expect(table().lines(width: 5).last == "12345678  bé    a value…")
    }

    @Test func `lets no data break a row or steer the terminal`() {
        var table = Table([.text("A"), .text("B")])
        table.add(["x\ny", "\u{1B}[2J\u{202E}"])
        #expect(table.lines(width: nil).last == #"x\ny  \u{1b}[2J\u{202e}"#)
    }

    @Test func `counts wide characters twice`() {
        var table = Table([.text("A"), .text("B")])
        table.add(["日本", "x"])
        table.add(["abcd", "y"])
        #expect(table.lines(width: nil) == ["A     B", "日本  x", "abcd  y"])
    }

    @Test func `grows columns of a table that is printed row by row`() {
        var stream = TableStream(
            [.number("N", minimumWidth: 3), .text("NAME"), .text("REST", canBeCut: true)], width: 24)
        #expect(stream.heading == "  N  NAME  REST")
        #expect(stream.line(["1", "a", "x"]) == "  1  a     x")
        #expect(stream.line(["12345", "abcdef", "0123456789"]) == "12345  abcdef  01234567…")
        #expect(stream.line(["2", "b", "y"]) == "    2  b       y")
    }
}

@Suite(.within(minutes: 5)) struct JSONLineTests {
    @Test func `writes fields in order`() {
        var line = JSONLine()
        line.add("text", "a\"b\\c\n\u{1}é")
        line.add("none", nil)
        line.add("number", UInt64.max)
        line.add("flag", true)
        line.add("share", 0.5)
        line.add("infinite", Double.infinity)
        line.add("raw", json: "[1]")
        #expect(
            line.text == #"{"text":"a\"b\\c\n\u0001é","none":null,"number":18446744073709551615,"flag":true,"#
                + #""share":0.5,"infinite":null,"raw":[1]}"#)
    }
}
