import Bytes
import Diagnostics
import Net
import Synchronization
import System
import TestSupport

/// List of the events that an application has seen. A test reads it from its own thread.
final class Diary: Sendable {
    enum Entry: Equatable, Sendable {
        case opened(ConnectionID)
        case received(ConnectionID, Int)
        case closed(ConnectionID, ConnectionEnd)
        case drainMailbox
        case timeIsUp(UInt64)
        case wentIdle(ConnectionID)
        case fellBehind(ConnectionID, Int)
        case filled(ConnectionID)
        case drained(ConnectionID)
        case hadNoRoom(ConnectionID)
        case tookTooLong(ConnectionID)
        case note(String)
    }

    private let entries = Mutex<[Entry]>([])
    private let pulse = Pulse()

    func write(_ entry: Entry) {
        entries.withLock { $0.append(entry) }
        pulse.beat()
    }

    var all: [Entry] { entries.withLock { $0 } }

    /// Waits until `question` returns an answer for the entries. Returns nil if the time limit passes.
    @discardableResult
    func wait<Answer>(_ question: ([Entry]) -> Answer?) -> Answer? {
        let deadline = Clock.monotonicNanoseconds() + UInt64(TestClient.patience) * 1_000_000_000
        while true {
            let seen = pulse.value
            if let answer = question(all) { return answer }
            let now = Clock.monotonicNanoseconds()
            guard now < deadline else { return nil }
            // A metric changes without an entry, so the question is repeated at intervals.
            _ = pulse.wait(beyond: seen, untilMonotonic: min(deadline, now + 10_000_000))
        }
    }

    func waitForEnd(_ number: Int = 0) -> ConnectionEnd? {
        wait { entries in
            let ends = entries.compactMap { if case .closed(_, let end) = $0 { end } else { nil } }
            return ends.count > number ? ends[number] : nil
        }
    }

    func waitForOpened(_ count: Int) -> [ConnectionID]? {
        wait { entries in
            let found = entries.compactMap { if case .opened(let id) = $0 { id } else { nil } }
            return found.count >= count ? found : nil
        }
    }
}

/// Application made of closures. By default it returns all data that it receives.
final class Scripted: SocketApplication, @unchecked Sendable {
    // Only the application's loop uses the fields; tests' threads use only `acts`.
    typealias Act = @Sendable (SocketLoop) -> Void

    let diary: Diary
    let acts = Mutex<[Act]>([])
    private var loop: SocketLoop!
    var onReceived: (@Sendable (SocketLoop, ConnectionID, inout MutableRawSpan) -> Int)?
    var onOpened: (@Sendable (SocketLoop, ConnectionID) -> Void)?
    var onFellBehind: (@Sendable (SocketLoop, ConnectionID) -> Void)?
    var onIdle: (@Sendable (SocketLoop, ConnectionID) -> Void)?
    var onStopsTaking: (@Sendable (SocketLoop, ConnectionID) -> Void)?

    init(_ diary: Diary) { self.diary = diary }

    func started(on loop: SocketLoop) { self.loop = loop }

    func opened(_ connection: ConnectionID, from peer: PeerAddress, isSecure: Bool) {
        onOpened?(loop, connection)
        diary.write(.opened(connection))
    }

    func received(_ connection: ConnectionID, _ bytes: inout MutableRawSpan) -> Int {
        if let onReceived { return onReceived(loop, connection, &bytes) }
        loop.send(bytes.bytes, to: connection)
        return bytes.byteCount
    }

    func peerStoppedReading(_ connection: ConnectionID) { onStopsTaking?(loop, connection) }

    func closed(_ connection: ConnectionID, _ end: ConnectionEnd) { diary.write(.closed(connection, end)) }
    func drainMailbox() {}

    func turn() -> Bool {
        for act in acts.withLock({ acts in
            defer { acts = [] }
            return acts
        }) { act(loop) }
        return false
    }

    func timeIsUp(_ token: UInt64) { diary.write(.timeIsUp(token)) }

    func wentIdle(_ connection: ConnectionID) {
        diary.write(.wentIdle(connection))
        onIdle?(loop, connection)
    }

    func hasNoRoom(_ connection: ConnectionID) { diary.write(.hadNoRoom(connection)) }
    func tookTooLong(_ connection: ConnectionID) { diary.write(.tookTooLong(connection)) }

    func filled(_ connection: ConnectionID) { diary.write(.filled(connection)) }
    func drained(_ connection: ConnectionID) { diary.write(.drained(connection)) }

    func fellBehind(_ connection: ConnectionID, queuedBytes: Int) {
        diary.write(.fellBehind(connection, queuedBytes))
        onFellBehind?(loop, connection)
    }
}

/// Server with one or more loops, and the objects that tests need with it.
final class Stage: Sendable {
    let server: SocketServer
    let diary: Diary
    let metrics: ProcessMetrics
    private let applications: Mutex<[Scripted]>

    init(
        _ change: (inout SocketSettings) -> Void = { _ in },
        script: @escaping @Sendable (Scripted) -> Void = { _ in }
    ) throws {
        DescriptorTable.raiseLimit()
        var settings = SocketSettings(host: "127.0.0.1", port: 0, loopCount: 1)
        change(&settings)
        let diary = Diary()
        let metrics = ProcessMetrics()
        let made = Mutex<[Scripted]>([])
        server = try SocketServer(settings, metrics: metrics) { _ in
            let application = Scripted(diary)
            script(application)
            made.withLock { $0.append(application) }
            return application
        }
        self.diary = diary
        self.metrics = metrics
        applications = Mutex(made.withLock { $0 })
    }

    deinit { server.stop() }

    func connect(receiveBuffer: Int32? = nil) throws -> TestClient {
        try TestClient(port: server.port, receiveBuffer: receiveBuffer)
    }

    /// Runs an action on the first loop in its next turn.
    func act(_ act: @escaping Scripted.Act) {
        applications.withLock { list in list[0].acts.withLock { $0.append(act) } }
        server.wakeAll()
    }
}

/// Returns bytes whose values depend on their positions.
func pattern(_ count: Int, seed: Int = 0) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: ($0 &+ seed) &* 131 &+ ($0 >> 8)) }
}

/// Back ends that this machine allows; epoll is always one of them.
let backends: [SocketSettings.Backend] = {
    let ring = try? Stage { $0.backend = .ring }
    return ring == nil ? [.epoll] : [.epoll, .ring]
}()
