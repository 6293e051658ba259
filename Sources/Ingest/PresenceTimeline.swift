import Bytes
import Change
import Diagnostics
import Synchronization

/// Presence on its way into the log: marks in from any thread, out to the ingest thread, in order.
///
/// It is bounded: what the log cannot take in time is dropped and counted. Presence itself does not depend on it.
final class PresenceTimeline: Sendable {
    private struct Waiting {
        var marks: [PresenceMark] = []
        var bytes = 0
    }

    private let waiting = Mutex(Waiting())
    private let dropped: Counter

    /// - Parameter dropped: counts the marks that are.
    init(dropped: Counter) { self.dropped = dropped }

    func record(_ marks: [PresenceMark]) {
        let dropped = waiting.withLock { waiting in
            var dropped = 0
            for mark in marks {
                guard PresenceCodec.isStorable(mark),
                    waiting.bytes + mark.byteCount <= Limits.maximumWaitingPresenceBytes
                else {
                    dropped += 1
                    continue
                }
                waiting.marks.append(mark)
                waiting.bytes += mark.byteCount
            }
            return dropped
        }
        if dropped > 0 { self.dropped.add(dropped) }
    }

    var isEmpty: Bool { waiting.withLock { $0.marks.isEmpty } }

    /// The oldest marks, as many as one entry holds. They stay until they are said to be taken.
    func next() -> [PresenceMark] {
        waiting.withLock { waiting in
            var bytes = 0
            let entry = waiting.marks.prefix { mark in
                bytes += mark.byteCount
                return bytes <= Limits.presenceEntryBytes
            }
            return entry.isEmpty ? Array(waiting.marks.prefix(1)) : Array(entry)
        }
    }

    /// The log has the oldest `count`.
    func taken(_ count: Int) {
        waiting.withLock { waiting in
            waiting.bytes -= waiting.marks.prefix(count).reduce(0) { $0 + $1.byteCount }
            waiting.marks.removeFirst(count)
        }
    }
}
