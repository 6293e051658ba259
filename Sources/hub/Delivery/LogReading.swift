import Diagnostics
import EventLog
import System

/// Reading of the event log by one pipeline: where it reads, and what it gives up if the log cannot be read.
struct LogReading {
    var place: ReadingPlace
    private(set) var health = ReadingHealth()

    init(from start: EventLogPosition?) { place = ReadingPlace(from: start) }

    /// Records that the log could be read, which ends an earlier trouble.
    mutating func hasRead(at now: UInt64) {
        guard let lasted = health.hasRead(at: now) else { return }
        Log.shared.info("the hub can read the event log again", [.duration(lasted)])
    }

    /// Decides what to give up after a read error, as little as possible: nothing if the kernel refuses for now, the
    /// entries that retention deleted, or the rest of a damaged segment. The hub tells the clients that miss changes.
    /// Returns true if changes are skipped.
    mutating func failed(_ error: any Error, in segment: UInt64, at now: UInt64) -> Bool {
        switch ReadingTrouble(error) {
        case .transient: isRefused(error, at: now)
        case .past:
            Log.shared.warning("retention deleted a part of the event log before it was read", [.reason("\(error)")])
            return lose(.end)
        case .segment(let damaged):
            Log.shared.error(
                "cannot read a part of the event log", [.segment(damaged ?? segment), .reason("\(error)")])
            if place.isOfPast {
                health.losePast()
            } else {
                health.loseSegment(LostPlace.segment(segment).reason)
                return lose(.segment(max(segment, damaged ?? segment)))
            }
        case .log:
            Log.shared.error("cannot read the event log", [.reason("\(error)")])
            if place.isOfPast { health.losePast() } else { isRefused(error, at: now) }
        }
        return false
    }

    private mutating func lose(_ lost: LostPlace) -> Bool {
        place.lose(lost)
        return true
    }

    private mutating func isRefused(_ error: any Error, at now: UInt64) {
        switch health.isRefused(Self.words(for: error), ofPast: place.isOfPast, at: now) {
        case .first:
            Log.shared.warning("cannot read the event log for now; trying again", [.reason("\(error)")])
        case .again: break
        // A client that catches up must not wait forever, so the hub gives up.
        case .givenUp:
            Log.shared.error(
                "cannot read a part of the event log for too long: the hub skips it for clients that catch up",
                [.reason("\(error)")])
        }
    }

    /// Returns the reason for a read error without file paths, because any client that can reach the port can read it.
    private static func words(for error: any Error) -> String {
        let code: Int32? =
            switch error {
            case let error as SystemError: error.code
            case EventLogError.failure(let failure): failure.code
            default: nil
            }
        guard let code else { return "the event log cannot be read" }
        return "the event log cannot be read: \(SystemError(operation: "", subject: "", code: code).reason)"
    }
}
