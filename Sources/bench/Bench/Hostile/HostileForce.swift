import Glibc
import Synchronization
import System

/// Sockets that attack a hub. Their thread has a low priority, because real attackers would use their own machines. A
/// socket that the hub closes connects again after a second, as clients do.
final class HostileForce {
    private static let tick: UInt64 = 2_000_000
    private static let patience: UInt64 = 1_000_000_000

    private final class State: Sendable {
        let isOver = Atomic<Bool>(false)
        let sent = Atomic<Int>(0)
    }

    private let state = State()
    private let thread: BackgroundThread

    init(_ attack: Attack, count: Int, _ target: HostileTarget) throws {
        let state = state
        thread = try BackgroundThread("hostile") {
            BackgroundThread.letOthersFirst()
            var sockets = (0..<count).map { HostileSocket(attack, $0, target) }
            while !state.isOver.load(ordering: .acquiring) {
                let began = Clock.monotonicNanoseconds()
                for index in sockets.indices where sockets[index].dueAt <= began {
                    let before = sockets[index].sentBytes
                    let isOpen = sockets[index].work()
                    state.sent.add(sockets[index].sentBytes - before, ordering: .relaxed)
                    if isOpen { continue }
                    sockets[index].dueAt = began + Self.patience
                }
                let took = Clock.monotonicNanoseconds() - began
                if took < Self.tick { BackgroundThread.rest(nanoseconds: Self.tick - took) }
            }
            for index in sockets.indices { sockets[index].close() }
        }
    }

    /// Number of bytes of the attack that the hub has accepted.
    var sentBytes: Int { state.sent.load(ordering: .relaxed) }

    func stop() {
        state.isOver.store(true, ordering: .releasing)
        thread.join()
    }
}

private struct HostileSocket {
    private static let chunk = 64 << 10

    let attack: Attack
    let number: Int
    let target: HostileTarget
    var dueAt: UInt64 = 0
    private var descriptor: Int32?
    private var pending: [UInt8] = []
    private var sent = 0
    private(set) var sentBytes = 0
    private var round = 0

    init(_ attack: Attack, _ number: Int, _ target: HostileTarget) {
        (self.attack, self.number, self.target) = (attack, number, target)
    }

    /// Sends as many bytes of the attack as the hub accepts, and reads what the hub has sent. Returns false if the
    /// socket was closed.
    mutating func work() -> Bool {
        guard let descriptor else { return open() }
        if attack.reads, !read(descriptor) { return end() }
        if sent == pending.count {
            pending = attack.next(round, target)
            sent = 0
            round += 1
        }
        while sent < pending.count {
            // SAFETY: the array outlives the call.
            let moved = unsafe pending[sent..<min(pending.count, sent + Self.chunk)].withUnsafeBytes {
                unsafe StreamSocket.send(descriptor, $0)
            }
            switch moved {
            case .moved(let count):
                sent += count
                sentBytes += count
            case .wouldBlock: return true
            case .finished, .failed: return end()
            }
        }
        return true
    }

    private mutating func open() -> Bool {
        guard let made = try? StreamSocket.connect(to: .loopback(port: target.port)) else { return false }
        // The socket's buffer is small, so that unsent bytes stay in the attacker's memory.
        StreamSocket.prepare(made, sendBuffer: Self.chunk)
        descriptor = made
        pending = attack.opening(number, target)
        sent = 0
        return true
    }

    private func read(_ descriptor: Int32) -> Bool {
        // SAFETY: the kernel writes within the room, and nobody looks at what.
        unsafe withUnsafeTemporaryAllocation(byteCount: Self.chunk, alignment: 1) { room in
            for _ in 0..<16 {
                // SAFETY: as above.
                switch unsafe StreamSocket.receive(descriptor, into: room) {
                case .moved: continue
                case .wouldBlock: return true
                case .failed(let code): return code == ENOTCONN
                case .finished: return false
                }
            }
            return true
        }
    }

    private mutating func end() -> Bool {
        close()
        return false
    }

    mutating func close() {
        if let descriptor { StreamSocket.reset(descriptor) }
        descriptor = nil
    }
}
