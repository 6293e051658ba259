/// Schedule of a replay: computes from the commit times how long the replay has to wait before each transaction.
public struct Pacer: Sendable {
    public enum Speed: Sendable, Equatable {
        /// A multiple of the original speed.
        case times(Double)
        case maximum

        public static let original = Speed.times(1)
    }

    public let speed: Speed
    /// Commit time of the first transaction, in microseconds since 1970, and the monotonic time in nanoseconds at which
    /// it was played.
    private var begin: (commit: Int64, played: UInt64)?

    public init(_ speed: Speed) { self.speed = speed }

    /// Returns the nanoseconds from `now` (monotonic) until the transaction with this commit time is due; 0 if the
    /// replay is late.
    public mutating func wait(for commit: Int64, now: UInt64) -> UInt64 {
        guard case .times = speed else { return 0 }
        guard let begin else {
            self.begin = (commit, now)
            return 0
        }
        let due = begin.played + nanoseconds(from: begin.commit, to: commit)
        return due > now ? due - now : 0
    }

    /// Shifts the schedule by the nanoseconds for which the user paused the replay.
    public mutating func heldUp(for nanoseconds: UInt64) { begin?.played += nanoseconds }

    /// Returns the time between two commits at this speed, in nanoseconds. Commit times are in microseconds since 1970.
    /// Returns 0 if the second commit time is earlier: commits are not always in the order of their times.
    public func nanoseconds(from first: Int64, to commit: Int64) -> UInt64 {
        guard case .times(let factor) = speed, commit > first else { return 0 }
        return UInt64(min(Double(commit - first) * 1000 / factor, 1e18))
    }
}

extension Pacer.Speed {
    private static let range = 0.001...1_000_000.0

    /// Parses a speed: `original`, `max`, `x10` or `x0.5`.
    public init?(_ text: String) {
        switch text {
        case "original": self = .original
        case "max": self = .maximum
        default:
            guard text.hasPrefix("x"), let factor = Double(text.dropFirst()), Self.range.contains(factor) else {
                return nil
            }
            self = .times(factor)
        }
    }
}

extension Pacer.Speed: CustomStringConvertible {
    public var description: String {
        switch self {
        case .maximum: "at full speed"
        case .times(1): "at the original speed"
        case .times(let factor):
            "at \(factor.rounded() == factor ? String(Int(factor)) : String(factor)) times the original speed"
        }
    }
}
