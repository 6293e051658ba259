/// Commit times in, waits out: when it is the turn of each transaction.
public struct Pacer: Sendable {
    public enum Speed: Sendable, Equatable {
        /// So many times as fast as it was.
        case times(Double)
        case maximum

        public static let original = Speed.times(1)
    }

    public let speed: Speed
    /// The first transaction's commit time, and when it was played.
    private var begin: (commit: Int64, played: UInt64)?

    public init(_ speed: Speed) { self.speed = speed }

    /// How many nanoseconds are left, at `now`, until what was committed then has its turn. Who is late does not wait, and
    /// what comes after him neither until he has made up for it.
    public mutating func wait(for commit: Int64, now: UInt64) -> UInt64 {
        guard case .times = speed else { return 0 }
        guard let begin else {
            self.begin = (commit, now)
            return 0
        }
        let due = begin.played + nanoseconds(from: begin.commit, to: commit)
        return due > now ? due - now : 0
    }

    /// Somebody held it up for so long, and wants to go on from there.
    public mutating func heldUp(for nanoseconds: UInt64) { begin?.played += nanoseconds }

    /// How long it takes from one commit to another one. Commits do not come in the order of their times.
    public func nanoseconds(from first: Int64, to commit: Int64) -> UInt64 {
        guard case .times(let factor) = speed, commit > first else { return 0 }
        return UInt64(min(Double(commit - first) * 1000 / factor, 1e18))
    }
}

extension Pacer.Speed {
    private static let range = 0.001...1_000_000.0

    /// `original`, `max`, `x10`, `x0.5`.
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
        case .maximum: "as fast as it goes"
        case .times(1): "at the original speed"
        case .times(let factor):
            "at \(factor.rounded() == factor ? String(Int(factor)) : String(factor)) times the original speed"
        }
    }
}
