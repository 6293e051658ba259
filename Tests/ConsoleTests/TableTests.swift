import Settings
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
            [.number("N", minimumWidth: 3), .text("NAME"), .text("REST", canBeCut: true)], on: terminal(width: 24))
        #expect(stream.heading == "  N  NAME  REST")
        #expect(stream.line(["1", "a", "x"]) == "  1  a     x")
        #expect(stream.line(["12345", "abcdef", "0123456789"]) == "12345  abcdef  01234567…")
        #expect(stream.line(["2", "b", "y"]) == "    2  b       y")
    }
}

private func terminal(width: Int? = nil, _ form: OutputForm = .table) -> Terminal {
    let terminal = Terminal(width: width, surroundings: .only(), output: { _ in }, errors: { _ in })
    terminal.form = form
    return terminal
}

@Suite(.within(minutes: 5)) struct OutputFormTests {
    private let columns: [Table.Column] = [.number("N"), .text("NAME", canBeCut: true), .text("A, B")]

    @Test func `comma-separated values have a heading, and quotes where they need them`() {
        var stream = TableStream(columns, on: terminal(.csv))
        #expect(stream.heading == "N,NAME,\"A, B\"")
        #expect(stream.line(["-5", "plain", "say \"hi\""]) == "-5,plain,\"say \"\"hi\"\"\"")
        #expect(stream.line(["1", "two\nlines", " space"]) == "1,\"two\nlines\",\" space\"")
        // A spreadsheet must not run a formula that a row contains.
        #expect(stream.line(["1", "=HYPERLINK(1)", "@x"]) == "1,'=HYPERLINK(1),'@x")
        #expect(stream.line(["-", "+2", "-x"]) == "-,+2,'-x")
    }

    @Test(arguments: seeds(20)) func `whoever reads comma-separated values gets the cells back`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var stream = TableStream(columns, on: terminal(.csv))
        for _ in 0..<50 {
            let cells = columns.map { _ in
                "x"
                    + (0..<Int.random(in: 0...8, using: &random)).map { _ in
                        random.pick(["a", "\"", ",", "\n", "\r\n", " ", "é", "\r"])
                    }
                    .joined()
            }
            #expect(read(stream.line(cells)) == cells)
        }
    }

    /// Parses a row by RFC 4180.
    private func read(_ line: String) -> [String] {
        var cells = [""]
        var isQuoted = false
        var rest = line.unicodeScalars[...]
        while let scalar = rest.popFirst() {
            switch scalar {
            case "\"" where isQuoted && rest.first == "\"":
                rest.removeFirst()
                cells[cells.count - 1].unicodeScalars.append("\"")
            case "\"": isQuoted.toggle()
            case "," where !isQuoted: cells.append("")
            default: cells[cells.count - 1].unicodeScalars.append(scalar)
            }
        }
        return cells
    }

    @Test func `tables of documents say what is a number, and no sign means more than itself`() {
        var stream = TableStream(columns, on: terminal(width: 20, .markdown))
        #expect(stream.heading == "| N | NAME | A, B |\n| ---: | --- | --- |")
        #expect(stream.line(["1", "a|b*c_d`e`", "<img>\n"]) == #"| 1 | a\|b\*c\_d\`e\` | \<img>\\n |"#)
        var table = Table(columns)
        table.add(["1", String(repeating: "x", count: 99), "y"])
        #expect(table.lines(on: terminal(width: 20, .markdown)).last?.contains("xxx | y |") == true)
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
