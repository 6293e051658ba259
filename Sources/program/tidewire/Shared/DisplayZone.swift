import Console
import Glibc
import History
import Projects
import System

/// Time zone in which times are shown to people. Scripts always get UTC.
struct DisplayZone {
    let name: String
    /// Seconds east of UTC, for a time in seconds since 1970.
    let offset: @Sendable (Int64) -> Int64

    static let utc = DisplayZone(name: "UTC") { _ in 0 }

    private init(name: String, offset: @escaping @Sendable (Int64) -> Int64) {
        self.name = name
        self.offset = offset
    }

    /// Creates the zone from `UTC`, `local`, `+02:00` or a name of the system's zone files, such as `Europe/Rome`.
    init?(_ text: String) {
        if text.uppercased() == "UTC" || text == "Z" {
            self = .utc
        } else if text.hasPrefix("+") || text.hasPrefix("-") {
            guard let moment = TimeText.parse("1970-01-02T00:00:00\(text)") else { return nil }
            let seconds = (86_400_000_000 - moment) / 1_000_000
            self.init(name: text) { _ in seconds }
        } else {
            guard text == "local" || LocalTime.use(zone: text) else { return nil }
            self.init(name: text, offset: LocalTime.offset)
        }
    }

    /// Returns a time, in microseconds since 1970, in this zone: `2026-11-14 10:02:11.204`.
    func text(_ microseconds: Int64?) -> String {
        guard let microseconds else { return "-" }
        return TimeText.write(
            microseconds, offsetSeconds: offset(microseconds.dividedDown(by: 1_000_000)), separator: " ", digits: 3)
    }

    /// Heading of a column of times.
    var heading: String { "TIME (\(name == "local" ? "LOCAL" : name))" }

    /// Returns the zone's offset in seconds at a local time, given in local seconds since 1970. It calculates twice,
    /// because the first result treats the local time as UTC.
    func offset(atLocal seconds: Int64) -> Int64 { offset(seconds - offset(seconds)) }
}

extension Int64 {
    fileprivate func dividedDown(by divisor: Int64) -> Int64 {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? quotient - 1 : quotient
    }
}

extension Option {
    static let zone = Option.value(
        "tz", "ZONE",
        "Show times in this zone, and read times without one in it: UTC (default), local, +02:00 or a name such as Europe/Rome. JSON is always UTC."
    )
}

extension Arguments {
    func zone() throws(UsageError) -> DisplayZone {
        guard let text = value(of: .zone) else { return .utc }
        guard let zone = DisplayZone(text) else {
            throw UsageError(
                "--tz \(text): expected UTC, local, an offset such as +02:00 or a zone such as Europe/Rome")
        }
        return zone
    }
}
