/// A metric as Prometheus reads it.
protocol Instrument: Sendable {
    static var typeName: String { get }
    var name: String { get }
    var help: String { get }

    func appendSamples(to text: inout [UInt8])
}

/// The text form that Prometheus scrapes ("Exposition formats", text format 0.0.4; the content type is
/// `text/plain; version=0.0.4; charset=utf-8`).
enum Exposition {
    static func text(of instruments: [any Instrument]) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(16 << 10)
        for instrument in instruments {
            appendHead(of: instrument, to: &text)
            instrument.appendSamples(to: &text)
        }
        return text
    }

    /// Each name once, with a line for each project.
    static func text(of projects: [ProjectGauges]) -> [UInt8] {
        var text: [UInt8] = []
        let gauges = projects.map(\.all)
        for index in gauges.first?.indices ?? 0..<0 {
            appendHead(of: gauges[0][index], to: &text)
            for (project, gauges) in zip(projects, gauges) {
                let label = project.tenant.map { "{tenant=\"\($0.escapedLabelValue)\"}" } ?? ""
                text.append(contentsOf: "\(gauges[index].name)\(label) \(gauges[index].value)\n".utf8)
            }
        }
        return text
    }

    private static func appendHead(of instrument: any Instrument, to text: inout [UInt8]) {
        let (name, kind) = (instrument.name, type(of: instrument).typeName)
        text.append(contentsOf: "# HELP \(name) \(instrument.help.escapedHelp)\n# TYPE \(name) \(kind)\n".utf8)
    }

    static func isValidName(_ name: String) -> Bool {
        guard let first = name.utf8.first, first < UInt8(ascii: "0") || first > UInt8(ascii: "9") else { return false }
        return name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: ":"): true
            default: false
            }
        }
    }
}

extension Counter: Instrument {
    static let typeName = "counter"

    func appendSamples(to text: inout [UInt8]) { text.append(contentsOf: "\(name) \(value)\n".utf8) }
}

extension CounterFamily: Instrument {
    static var typeName: String { Counter.typeName }

    func appendSamples(to text: inout [UInt8]) {
        for member in Label.allCases {
            let labels = "{\(Label.labelName)=\"\(member.rawValue.escapedLabelValue)\"}"
            text.append(contentsOf: "\(name)\(labels) \(self[member].value)\n".utf8)
        }
    }
}

extension Gauge: Instrument {
    static let typeName = "gauge"

    func appendSamples(to text: inout [UInt8]) { text.append(contentsOf: "\(name) \(value)\n".utf8) }
}

extension Histogram: Instrument {
    static let typeName = "histogram"

    /// Of the 976 buckets only the powers of two are shown, in the span that matters for the unit: their bounds are exact.
    /// (A bound is read as 2^k and counts the values below it: they differ by one nanosecond or byte.)
    func appendSamples(to text: inout [UInt8]) {
        let snapshot = snapshot()
        let total = snapshot.count
        for exponent in unit.shownExponents {
            let bound: UInt64 = 1 << UInt64(exponent)
            let label = unit.exposed(bound)
            text.append(contentsOf: "\(name)_bucket{le=\"\(label)\"} \(snapshot.count(atMost: bound - 1))\n".utf8)
        }
        text.append(contentsOf: "\(name)_bucket{le=\"+Inf\"} \(total)\n".utf8)
        text.append(contentsOf: "\(name)_sum \(unit.exposed(snapshot.sum))\n".utf8)
        text.append(contentsOf: "\(name)_count \(total)\n".utf8)
    }
}

extension Histogram.Unit {
    /// 2^13 ns is 8 µs and 2^36 ns is 69 s; 2^6 bytes to 1 GiB.
    fileprivate var shownExponents: ClosedRange<Int> {
        switch self {
        case .seconds: 13...36
        case .bytes: 6...30
        }
    }

    fileprivate func exposed(_ value: UInt64) -> String {
        switch self {
        case .seconds: "\(Double(value) / 1e9)"
        case .bytes: "\(value)"
        }
    }
}

extension String {
    fileprivate var escapedHelp: String {
        escaped { $0 == "\\" || $0 == "\n" }
    }

    fileprivate var escapedLabelValue: String {
        escaped { $0 == "\\" || $0 == "\n" || $0 == "\"" }
    }

    private func escaped(where mustEscape: (Character) -> Bool) -> String {
        var result = ""
        for character in self {
            guard mustEscape(character) else {
                result.append(character)
                continue
            }
            result += character == "\n" ? "\\n" : "\\\(character)"
        }
        return result
    }
}
