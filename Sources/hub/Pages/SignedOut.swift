import Bytes
import Diagnostics
import Synchronization
import System

/// Sessions of the web console that operators have ended before their time. The hub refuses their cookies, also after a
/// restart.
///
/// The list is short: an entry is removed when its session would have ended anyway. A full list ends all sessions.
final class SignedOut: Sendable {
    private struct State {
        /// Ends of the sessions in Unix seconds, by the sessions' names.
        var ends: [String: Int64] = [:]
        /// Time in Unix seconds. All sessions that began at that time or earlier have ended.
        var watermark: Int64 = 0
    }

    static let most = 1000
    static let fileName = "console-signed-out"
    private static let maximumBytes = UInt64(1 << 20)

    private let state: Mutex<State>
    /// Directory of the file; nil if the list is kept in memory only.
    private let directory: (any StorageDirectory)?
    /// Function that makes a thread call `write`; nil until one is set.
    private let wake = Mutex<(@Sendable () -> Void)?>(nil)

    /// Reads the list that an earlier process of the hub wrote.
    ///
    /// - Parameter now: Unix time in seconds. If the list cannot be read, all sessions until then have ended.
    init(in directory: (any StorageDirectory)?, at now: Int64) {
        self.directory = directory
        var state = State()
        do throws(SystemError) {
            if let directory, try directory.names().contains(Self.fileName) {
                let bytes = try directory.open(Self.fileName, for: .reading).contents(atMost: Self.maximumBytes)
                state = Self.decode(String(decoding: bytes, as: UTF8.self)) ?? State(watermark: now)
            }
        } catch {
            Log.shared.warning(
                "cannot read which sessions of the console were ended: all have to sign in again",
                [.path(Self.fileName), .error("\(error)")])
            state.watermark = now
        }
        self.state = Mutex(state)
    }

    func contains(_ session: ConsoleSession) -> Bool {
        state.withLock { $0.ends[session.id] != nil || session.begun <= $0.watermark }
    }

    func callOnChange(_ function: @escaping @Sendable () -> Void) { wake.withLock { $0 = function } }

    /// Ends a session.
    func add(_ session: ConsoleSession, at now: Int64) {
        state.withLock { state in
            state.ends = state.ends.filter { $0.value > now }
            if state.ends.count >= Self.most {
                state = State(watermark: now)
            } else {
                state.ends[session.id] = session.end
            }
        }
        wake.withLock { $0 }?()
    }

    /// Writes the list to the disk. Returns false if that failed. Only one thread may call it, because it blocks, and
    /// so that the disk never gets an older list after a newer one.
    func write() -> Bool {
        guard let directory else { return true }
        let text = state.withLock { state in
            (["\(state.watermark)"] + state.ends.map { "\($0.key) \($0.value)" }).joined(separator: "\n") + "\n"
        }
        do throws(SystemError) {
            try directory.replace(Self.fileName, with: Array(text.utf8).rawBytes)
            return true
        } catch {
            Log.shared.error(
                "cannot store that a session of the console was ended: it stays ended until the hub restarts",
                [.path(Self.fileName), .error("\(error)")])
            return false
        }
    }

    private static func decode(_ text: String) -> State? {
        var lines = text.split(separator: "\n")
        guard !lines.isEmpty, let watermark = Int64(lines.removeFirst()) else { return nil }
        var state = State(watermark: watermark)
        for line in lines {
            let words = line.split(separator: " ")
            guard words.count == 2, let end = Int64(words[1]) else { return nil }
            state.ends[String(words[0])] = end
        }
        return state
    }
}
