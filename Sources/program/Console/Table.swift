/// Rows for people, in aligned columns under headings.
public struct Table {
    public struct Column: Sendable {
        public enum Alignment: Sendable {
            case left, right
        }

        public let title: String
        public let alignment: Alignment
        /// True if cells may be cut when the screen is too narrow.
        public let canBeCut: Bool
        /// Minimum width in characters, for tables that are printed while their rows arrive.
        public let minimumWidth: Int

        public static func text(_ title: String, canBeCut: Bool = false, minimumWidth: Int = 0) -> Column {
            Column(title: title, alignment: .left, canBeCut: canBeCut, minimumWidth: minimumWidth)
        }

        public static func number(_ title: String, minimumWidth: Int = 0) -> Column {
            Column(title: title, alignment: .right, canBeCut: false, minimumWidth: minimumWidth)
        }
    }

    public let columns: [Column]
    private var rows: [[String]] = []

    public init(_ columns: [Column]) {
        self.columns = columns
    }

    public mutating func add(_ cells: [String]) {
        precondition(cells.count == columns.count, "a row has a cell for each column")
        rows.append(cells)
    }

    /// Returns the heading and the rows in the terminal's format.
    public func lines(on terminal: Terminal) -> [String] {
        guard terminal.form != .table else { return lines(width: terminal.width) }
        var stream = TableStream(columns, on: terminal)
        return [stream.heading] + rows.map { stream.line($0) }
    }

    /// Returns the aligned lines for people. Nothing is cut unless a screen width is given.
    func lines(width: Int?) -> [String] {
        let rows = rows.map { $0.map(ScreenText.escaped) }
        var widths = columns.indices.map { column in
            rows.reduce(columns[column].startWidth) { max($0, ScreenText.width($1[column])) }
        }
        if let width { cut(&widths, to: width) }
        return ([columns.map(\.title)] + rows).map { Self.line($0, columns, widths) }
    }

    /// Reduces the widest columns that may be cut, until the row fits or no column can shrink further.
    private func cut(_ widths: inout [Int], to width: Int) {
        let narrowest = 8
        while widths.reduce(0, +) + 2 * (widths.count - 1) > width {
            let candidates = columns.indices.filter { columns[$0].canBeCut && widths[$0] > narrowest }
            guard let widest = candidates.max(by: { widths[$0] < widths[$1] }) else { return }
            widths[widest] -= 1
        }
    }

    fileprivate static func line(_ cells: [String], _ columns: [Column], _ widths: [Int]) -> String {
        let padded = columns.indices.map { index in
            let cell = columns[index].canBeCut ? ScreenText.cut(cells[index], to: widths[index]) : cells[index]
            let padding = String(repeating: " ", count: max(0, widths[index] - ScreenText.width(cell)))
            return columns[index].alignment == .left ? cell + padding : padding + cell
        }
        var line = padded.joined(separator: "  ")
        // The loop works on bytes, because counting characters of a long row is slow.
        while line.utf8.last == UInt8(ascii: " ") { line.unicodeScalars.removeLast() }
        return line
    }
}

/// A table whose rows are printed as they arrive. Columns start at their minimum width and grow when necessary.
public struct TableStream {
    private let columns: [Table.Column]
    private let form: OutputForm
    private let screenWidth: Int?
    /// True if the output goes to a screen, in any format.
    private let isOnScreen: Bool
    private var widths: [Int]

    public init(_ columns: [Table.Column], on terminal: Terminal) {
        self.columns = columns
        form = terminal.form
        screenWidth = terminal.width
        isOnScreen = terminal.hasScreen
        widths = columns.map(\.startWidth)
    }

    public var heading: String {
        let titles = columns.map(\.title)
        return switch form {
        case .table, .json: Table.line(titles, columns, widths)
        case .csv: RowText.csv(titles, columns)
        case .markdown: RowText.markdown(titles) + "\n" + RowText.markdownRule(columns)
        }
    }

    public mutating func line(_ cells: [String]) -> String {
        precondition(cells.count == columns.count, "a row has a cell for each column")
        switch form {
        case .table, .json: return aligned(cells)
        case .csv: return RowText.csv(isOnScreen ? cells.map(ScreenText.escaped) : cells, columns)
        case .markdown: return RowText.markdown(cells)
        }
    }

    private mutating func aligned(_ cells: [String]) -> String {
        let cells = cells.map(ScreenText.escaped)
        for index in columns.indices where !columns[index].canBeCut || screenWidth == nil {
            widths[index] = max(widths[index], index == columns.count - 1 ? 0 : ScreenText.width(cells[index]))
        }
        giveRemainderToLastColumn()
        return Table.line(cells, columns, widths)
    }

    /// Gives the rest of the screen's width to the last column, if that may be cut.
    private mutating func giveRemainderToLastColumn() {
        guard let screenWidth, let last = columns.last, last.canBeCut else { return }
        let others = widths.dropLast().reduce(0) { $0 + $1 + 2 }
        widths[widths.count - 1] = max(last.startWidth, screenWidth - others)
    }
}

extension Table.Column {
    fileprivate var startWidth: Int {
        max(minimumWidth, ScreenText.width(title))
    }
}

/// Functions for text on a screen: they escape, measure and cut it.
public enum ScreenText {
    /// Returns the text with control characters escaped, because data must not control the terminal or break a row.
    public static func escaped(_ text: String) -> String {
        // Most texts are printable ASCII.
        if text.utf8.allSatisfy({ $0 &- 0x20 < 0x5f }) { return text }
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        return text.unicodeScalars.reduce(into: "") { result, scalar in
            switch scalar {
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case _ where isControl(scalar): result += "\\u{\(String(scalar.value, radix: 16))}"
            default: result.unicodeScalars.append(scalar)
            }
        }
    }

    /// Returns the number of screen columns that the text occupies. The result is an estimate for common scripts,
    /// because terminals disagree about the rest.
    public static func width(_ text: String) -> Int {
        text.utf8.allSatisfy { $0 < 0x80 } ? text.utf8.count : text.reduce(0) { $0 + width($1) }
    }

    public static func cut(_ text: String, to limit: Int) -> String {
        guard width(text) > limit else { return text }
        var result = ""
        var taken = 1
        for character in text {
            taken += width(character)
            guard taken <= limit else { break }
            result.append(character)
        }
        return result + "…"
    }

    private static func width(_ character: Character) -> Int {
        switch character.unicodeScalars.first?.value ?? 0 {
        case 0x1100...0x115F, 0x2E80...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60,
            0xFFE0...0xFFE6, 0x1F300...0x1FAFF, 0x20000...0x3FFFD:
            2
        default: 1
        }
    }

    private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0..<0x20, 0x7F...0x9F, 0x2028...0x202E, 0x2066...0x2069, 0x200E, 0x200F, 0xFEFF: true
        default: false
        }
    }
}
