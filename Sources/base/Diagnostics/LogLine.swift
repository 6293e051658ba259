/// Log line before it is formatted.
struct LogLine {
    let time: WallTime
    let level: Log.Level
    let sentence: String
    let fields: [LogField]

    /// Returns the text form: `2026-11-14T10:02:11.204Z info slot created slot=tidewire lsn=0/16B3748`
    func text(coloured: Bool) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(128 + 32 * fields.count)
        line.append(contentsOf: time.description.utf8)
        line.append(UInt8(ascii: " "))
        line.append(contentsOf: (coloured ? level.colour + level.rawValue + "\u{1B}[0m" : level.rawValue).utf8)
        line.append(UInt8(ascii: " "))
        LogText.appendEscaped(sentence, to: &line)
        for field in fields {
            line.append(UInt8(ascii: " "))
            line.append(contentsOf: field.key.name.utf8)
            line.append(UInt8(ascii: "="))
            field.value.appendText(to: &line)
        }
        line.append(UInt8(ascii: "\n"))
        return line
    }

    /// Returns the JSON form: `{"time":"…","level":"info","event":"slot created","slot":"tidewire"}`
    func json() -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(160 + 40 * fields.count)
        line.append(contentsOf: #"{"time":""#.utf8)
        line.append(contentsOf: time.description.utf8)
        line.append(contentsOf: #"","level":""#.utf8)
        line.append(contentsOf: level.rawValue.utf8)
        line.append(contentsOf: #"","event":"#.utf8)
        LogText.appendQuoted(sentence, to: &line)
        for field in fields {
            line.append(contentsOf: #",""#.utf8)
            line.append(contentsOf: field.key.name.utf8)
            line.append(contentsOf: #"":"#.utf8)
            field.value.appendJSON(to: &line)
        }
        line.append(contentsOf: "}\n".utf8)
        return line
    }
}

extension Log.Level {
    fileprivate var colour: String {
        switch self {
        case .error: "\u{1B}[31m"
        case .warning: "\u{1B}[33m"
        case .info: "\u{1B}[32m"
        case .debug: "\u{1B}[2m"
        }
    }
}

extension LogField.Value {
    fileprivate func appendText(to line: inout [UInt8]) {
        switch self {
        case .text(let text): LogText.appendQuotedIfNeeded(text, to: &line)
        default: appendJSON(to: &line)
        }
    }

    fileprivate func appendJSON(to line: inout [UInt8]) {
        switch self {
        case .text(let text): LogText.appendQuoted(text, to: &line)
        case .integer(let number): line.append(contentsOf: String(number).utf8)
        case .unsigned(let number): line.append(contentsOf: String(number).utf8)
        case .flag(let flag): line.append(contentsOf: (flag ? "true" : "false").utf8)
        case .milliseconds(let number): line.append(contentsOf: LogText.thousandths(number).utf8)
        }
    }
}
