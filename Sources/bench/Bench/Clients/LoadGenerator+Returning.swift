import Bytes
import System

/// Command that makes the clients connect and join again after their sockets were cut.
struct LoadReturn {
    let server: SocketAddress
    let path: ClientText
    let nanoseconds: UInt64
    let topic: ClientText
    let payload: ClientText
    /// Index of the next client to connect.
    var next = 0

    /// Parses PORT PATH MILLISECONDS TOPIC PAYLOAD.
    init?(words: [String]) {
        guard words.count == 5, let port = UInt16(words[0]), let milliseconds = UInt64(words[2]),
            milliseconds < 1 << 32
        else { return nil }
        server = .loopback(port: port)
        path = ClientText(words[1])
        nanoseconds = milliseconds * 1_000_000
        topic = ClientText(words[3])
        payload = ClientText(words[4])
    }

    /// Returns the time at which a client has to connect, in nanoseconds since the beginning of the task.
    func due(_ index: Int, of count: Int) -> UInt64 { nanoseconds * UInt64(index) / UInt64(max(1, count)) }
}

/// Schedule by which each client reads at most `bytes` bytes every `nanoseconds`.
struct SlowReading {
    let bytes: Int
    let nanoseconds: UInt64
    var next: UInt64
}

extension LoadGenerator {
    mutating func cut() {
        for index in clients.indices where clients[index].phase != .closed {
            clients[index].phase = .closed
            clients[index].incomplete = []
            StreamSocket.close(clients[index].descriptor)
        }
        answer(WorkerAnswer())
    }

    mutating func beginReturning(_ order: LoadReturn) {
        guard clients.allSatisfy({ $0.phase == .closed }) else {
            return answer(WorkerAnswer(failure: "some are here"))
        }
        topics.append(order.topic)
        task = .returning(order)
    }

    /// Connects the clients that are due, until the maximum number of handshakes is in progress.
    mutating func returnMore(_ order: LoadReturn) {
        var order = order
        let elapsed = Clock.monotonicNanoseconds() - begun
        while order.next < clients.count, inFlight < window, order.due(order.next, of: clients.count) <= elapsed {
            do throws(SystemError) {
                try connect(order.server, order.next)
            } catch {
                return fail(error.description)
            }
            order.next += 1
        }
        task = .returning(order)
        if order.next == clients.count, inFlight == 0 {
            finish("returned", clients.count { $0.phase == .subscribed })
        }
    }

    // MARK: Reading slowly

    mutating func beSlow(_ bytes: Int, _ milliseconds: Int) {
        let wasSlow = slow != nil
        slow = bytes == 0 ? nil : SlowReading(bytes: bytes, nanoseconds: UInt64(milliseconds) * 1_000_000, next: 0)
        if wasSlow != (slow != nil) {
            for index in clients.indices where clients[index].phase != .closed {
                do throws(SystemError) {
                    try epoll.change(clients[index].descriptor, slow == nil ? .readable : [], key: UInt64(index))
                } catch {
                    return answer(WorkerAnswer(failure: error.description))
                }
            }
        }
        answer(WorkerAnswer())
    }

    mutating func readSlowly(_ input: inout ByteWriter) {
        guard let slow, case let now = Clock.monotonicNanoseconds(), now >= slow.next else { return }
        self.slow?.next = now + slow.nanoseconds
        for index in clients.indices where clients[index].phase != .closed { read(index, slow.bytes, &input) }
    }
}
