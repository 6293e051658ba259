import Bytes
import Gateway
import Net
import Server
import Synchronization
import System
import WebSocket

/// Subscribers without sockets, in the hub's process, each with its own claims. They check the changes that each of
/// them receives.
final class PlayedClients: Sendable {
    /// Number of joins that are in progress simultaneously.
    private static let window = 256

    private let hub: RlsHub
    private let witness = PlayedWitness()

    init(_ hub: RlsHub) { self.hub = hub }

    var count: Int { witness.subscribed.load(ordering: .acquiring) }

    // MARK: Joining

    /// Adds clients until there are `total`, and waits until all are subscribed.
    func grow(to total: Int, _ introduction: (Int) -> (token: String, join: String)) throws {
        var begun = count
        let deadline = Clock.monotonicNanoseconds() + 600_000_000_000
        while count < total {
            if begun < total, begun - count < Self.window {
                let batch = min(64, total - begun)
                let texts = (begun..<begun + batch).map { number in
                    let (token, join) = introduction(number)
                    return (Self.upgrade(token), Self.frame(join))
                }
                begun += batch
                hub.inProcessClients.order { [witness] loop in
                    for text in texts { witness.join(text.0, text.1, on: loop) }
                }
            } else {
                Pause.milliseconds(1)
            }
            if let refusal = witness.refusal { throw BenchFailure("a client was refused: \(refusal)") }
            if Clock.monotonicNanoseconds() > deadline { throw BenchFailure("clients are not subscribed in time") }
        }
    }

    private static func upgrade(_ token: String) -> [UInt8] {
        Array(
            ("GET /socket/websocket?vsn=2.0.0&apikey=\(token) HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
                + "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
                .utf8)
    }

    private static func frame(_ text: String) -> [UInt8] {
        let payload = Array(text.utf8)
        var frame = ByteWriter(capacity: payload.count + 16)
        ClientFrameEncoder.append(.text, payload.rawBytes, mask: 0x5a3c_96f1, to: &frame)
        return frame.copied()
    }

    // MARK: Receiving

    /// Releases the held hub and waits until the clients have received these changes. Returns the nanoseconds. With
    /// `isForAll`, every client receives every change. Otherwise each change is for one client: the one whose number is
    /// the change's number modulo the number of clients.
    func receive(_ changes: Range<Int64>, isForAll: Bool, wantsFrames: Bool) throws -> UInt64 {
        let expected = isForAll ? changes.count * count : changes.count
        let stride = isForAll ? nil : Int64(count)
        witness.awaiting(expected)
        hub.goOn { [witness] in witness.begin(changes, stride, wantsFrames) }
        guard witness.awaitEnd(milliseconds: 120_000) else {
            let told = witness.refusal.map { "; a client was told: \($0)" } ?? ""
            throw BenchFailure(
                "void (rls): \(witness.received.load(ordering: .acquiring)) of \(expected) came\(told)",
                hint: "what the hub itself says of it stands above")
        }
        // If the hub sends duplicates, or changes for other clients, they arrive during this pause.
        Pause.milliseconds(10)
        let verdict = Pulse()
        hub.inProcessClients.order { [witness] _ in
            witness.judge()
            verdict.beat()
        }
        _ = verdict.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + 60_000_000_000)
        if let fault = witness.fault { throw BenchFailure("void (rls): \(fault)") }
        return witness.nanoseconds
    }
}

/// Observer of the frames that the hub sends to `PlayedClients`. It counts or checks the changes of each client.
private final class PlayedWitness: FrameWitness, Sendable {
    let subscribed = Atomic<Int>(0)
    let received = Atomic<Int>(0)
    /// Number of changes after which the round has ended.
    private let expected = Atomic<Int>(.max)
    /// Nanoseconds from the beginning of the round to the last expected change; 0 before that.
    private let ended = Atomic<UInt64>(0)
    /// First refusal of the hub, and first fault in the changes that a client received; nil if there is none.
    private let said = Mutex<(refusal: String?, fault: String?)>((nil, nil))
    /// Counts that only the loop's thread uses.
    private let counts = LoopOwned(Counts())

    /// Value that only the loop's thread touches.
    private final class LoopOwned<Value>: @unchecked Sendable {
        var value: Value
        init(_ value: Value) { self.value = value }
    }

    private struct Counts {
        var isJoining = true
        var wantsFrames = false
        var changes: Range<Int64> = 0..<0
        var stride: Int64?
        var received = 0
        var each: [Int] = []
        var last: [Int64] = []
        var began: UInt64 = 0
        var isUpgraded: [Bool] = []
        var hint = Hint()
    }

    var refusal: String? { said.withLock { $0.refusal } }
    var fault: String? { said.withLock { $0.fault } }

    // MARK: From other threads

    /// Sets the number of changes of the next round.
    func awaiting(_ count: Int) {
        received.store(0, ordering: .releasing)
        ended.store(0, ordering: .releasing)
        expected.store(count, ordering: .releasing)
    }

    func awaitEnd(milliseconds: Int) -> Bool {
        let deadline = Clock.monotonicNanoseconds() + UInt64(milliseconds) * 1_000_000
        while ended.load(ordering: .acquiring) == 0 {
            if fault != nil { return true }
            if Clock.monotonicNanoseconds() > deadline { return false }
            Pause.milliseconds(1)
        }
        return true
    }

    var nanoseconds: UInt64 { ended.load(ordering: .acquiring) }

    // MARK: On the loop's thread

    func join(_ request: [UInt8], _ frame: [UInt8], on loop: RehearsalLoop) {
        counts.value.isJoining = true
        guard let connection = loop.connect(watchedBy: self) else { return refuse("there is no place for it") }
        let seat = Int(connection.seat)
        while counts.value.each.count <= seat {
            counts.value.each.append(0)
            counts.value.last.append(-1)
        }
        loop.hear(request, from: connection)
        loop.hear(frame, from: connection)
    }

    func begin(_ changes: Range<Int64>, _ stride: Int64?, _ wantsFrames: Bool) {
        counts.value.isJoining = false
        counts.value.wantsFrames = wantsFrames
        counts.value.changes = changes
        counts.value.stride = stride
        counts.value.received = 0
        for seat in counts.value.each.indices {
            counts.value.each[seat] = 0
            counts.value.last[seat] = -1
        }
        counts.value.began = Clock.monotonicNanoseconds()
    }

    /// Checks that each client has received the right number of changes. With `wantsFrames`, also checks that they are
    /// different, in order, and the client's own.
    func judge() {
        for seat in counts.value.each.indices where counts.value.each[seat] != share(seat) {
            return blame("client \(seat) got \(counts.value.each[seat]) changes instead of \(share(seat))")
        }
        counts.value.isJoining = true
    }

    /// Returns the number of changes that the client at this seat has to receive.
    private func share(_ seat: Int) -> Int {
        let changes = counts.value.changes
        guard let stride = counts.value.stride.map(Int.init) else { return changes.count }
        // The changes are for the clients in turn, beginning with the first client.
        return (max(0, changes.count - seat) + stride - 1) / stride
    }

    var wantsFrames: Bool { counts.value.isJoining || counts.value.wantsFrames }

    /// Counts frames of changes whose content is not checked.
    func counted(_ frames: Int, to connection: ConnectionID) { add(frames, Int(connection.seat)) }

    private func add(_ frames: Int, _ seat: Int) {
        counts.value.each[seat] += frames
        counts.value.received += frames
        guard counts.value.received >= expected.load(ordering: .relaxed) else { return }
        received.store(counts.value.received, ordering: .releasing)
        if ended.load(ordering: .relaxed) == 0 {
            ended.store(Clock.monotonicNanoseconds() - counts.value.began, ordering: .releasing)
        }
    }

    /// Checks each frame in the bytes that the hub sent to a client.
    func saw(_ bytes: RawSpan, to connection: ConnectionID) {
        var at = bytes.starts(with: "HTTP/1.1 ") ? upgraded(bytes) : 0
        while let frame = ServerFrame(bytes, at: at) {
            look(bytes.extracting(frame.payload), frame.kind, Int(connection.seat))
            at = frame.payload.upperBound
        }
    }

    /// Returns the offset of the first frame after the server's answer to the WebSocket upgrade.
    private func upgraded(_ bytes: RawSpan) -> Int {
        guard bytes.starts(with: "HTTP/1.1 101"), let end = bytes.firstOffset(of: "\r\n\r\n", from: 0) else {
            refuse(String(bytes.text.prefix(200)))
            return bytes.byteCount
        }
        return end + 4
    }

    private func look(_ payload: RawSpan, _ kind: ServerFrame.Kind, _ seat: Int) {
        guard kind == .message else { return refuse(String(payload.text.prefix(200))) }
        switch ServerMessage(payload, hint: &counts.value.hint) {
        case .subscribed: subscribed.wrappingAdd(1, ordering: .releasing)
        case .refused, .malformed: refuse(String(payload.text.prefix(300)))
        case .joined, .other, .presenceState, .presenceDiff: break
        case .change(let id, _, _): change(id, seat)
        }
    }

    private func change(_ id: Int64, _ seat: Int) {
        let (changes, stride) = (counts.value.changes, counts.value.stride)
        guard changes.contains(id) else { return blame("client \(seat) got \(id), which is not of this round") }
        if let stride, id % stride != Int64(seat) { return blame("client \(seat) got \(id), which is not for it") }
        guard id > counts.value.last[seat] else { return blame("client \(seat) got \(id) twice or late") }
        counts.value.last[seat] = id
        add(1, seat)
    }

    private func refuse(_ reason: String) { said.withLock { $0.refusal = $0.refusal ?? reason } }
    private func blame(_ fault: String) { said.withLock { $0.fault = $0.fault ?? fault } }
}
