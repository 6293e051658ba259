import Bytes
import System
import WebSocket

/// Thousands of clients of one server in one thread. The generator reads commands as lines (`LoadCommand`) and answers
/// each with one line when its task is done.
///
/// The generator checks changes when it receives them. Every change carries a number, the time at which it was made,
/// and possibly its owner (`"seq":7,"at":1767225600000000,"owner":3`). The generator counts changes that are missing,
/// duplicated, or sent to the wrong client.
public struct LoadGenerator: ~Copyable {
    /// Maximum number of clients in one process, because a table of descriptors may be limited to 20,000.
    public static let maximumClients = 19_000
    /// Number of clients that share a source address. Each of them has its own port.
    static let clientsPerAddress = 10_000
    /// Default for the maximum number of handshakes and joins that are in progress simultaneously.
    static let usualWindow = 256
    /// Maximum number of bytes in one read. A longer message is refused.
    static let readBytes = 256 << 10
    private static let inputKey = UInt64.max

    enum Task {
        case idle
        case connecting(SocketAddress, path: ClientText, next: Int, end: Int)
        case joining(topic: ClientText, payload: ClientText, bindsChanges: Bool, next: Int)
        case awaiting(deadline: UInt64)
        /// Clients are sending messages. When all are sent, the task becomes `awaiting`.
        case talking
        case tracking(PresenceTask)
        case returning(LoadReturn)
    }

    private var lines: LineReader
    private let output: Int32
    let epoll: Epoll
    var clients: [LoadClient] = []
    /// Number of this process's first client. Clients are numbered across all processes.
    var firstNumber = 0
    var task = Task.idle
    var inFlight = 0
    var window = LoadGenerator.usualWindow
    /// Joined topics, in the order of their joins. The first one has the ref 1.
    var topics: [ClientText] = []
    var talk: Talk?
    var presence: PresenceWatch?
    var tally = LoadTally()
    var heartbeats = Heartbeats()
    var signature: ClientSignature?
    var slow: SlowReading?
    private(set) var begun: UInt64 = 0
    private var isOver = false
    /// Buffer for sending. It holds one frame or request at a time.
    var outgoing = ByteWriter()
    /// Content of the next frame.
    var message = ByteWriter()

    /// Carries out the commands in the lines of the input until the input ends.
    public static func run(input: Int32 = 0, output: Int32 = 1) throws {
        DescriptorTable.raiseLimit()
        var generator = try LoadGenerator(input: input, output: output)
        generator.run()
    }

    private init(input: Int32, output: Int32) throws {
        let epoll = try Epoll()
        try epoll.add(input, .readable, key: Self.inputKey)
        self.epoll = epoll
        lines = LineReader(input)
        self.output = output
    }

    private mutating func run() {
        var input = ByteWriter(capacity: Self.readBytes)
        while !isOver {
            for index in 0..<epoll.wait(milliseconds: timeout) {
                let (key, events) = epoll.event(index)
                if key == Self.inputKey { takeLines() } else { handle(Int(key), events, &input) }
            }
            goOn()
            readSlowly(&input)
        }
        for client in clients where client.phase != .closed { StreamSocket.close(client.descriptor) }
    }

    private var timeout: Int32? {
        var next = heartbeats.next(clients: clients.count)
        switch task {
        case .awaiting(let deadline): next = min(next ?? .max, deadline)
        case .talking: next = min(next ?? .max, talk?.nextDue ?? .max)
        case .tracking(let task): next = min(next ?? .max, task.mayGoOn(presence) ? 0 : task.deadline)
        case .returning(let order) where order.next < clients.count && inFlight < window:
            next = min(next ?? .max, begun + order.due(order.next, of: clients.count))
        case .idle, .connecting, .joining, .returning: break
        }
        if let slow { next = min(next ?? .max, slow.next) }
        guard let next else { return nil }
        let now = Clock.monotonicNanoseconds()
        return next <= now ? 0 : Int32(clamping: (next - now) / 1_000_000 + 1)
    }

    private mutating func takeLines() {
        lines.fill()
        while let line = lines.next() { begin(line) }
        if lines.isAtEnd { isOver = true }
    }

    private mutating func begin(_ line: String) {
        guard case .idle = task else { return answer(WorkerAnswer(failure: "the last task is not done")) }
        guard let command = LoadCommand(line) else { return answer(WorkerAnswer(failure: "no such command")) }
        begun = Clock.monotonicNanoseconds()
        switch command {
        case .connect(let server, let path, let first, let count): beginConnecting(server, path, first, count)
        case .join(let topic, let payload, let bindsChanges):
            topics.append(topic)
            task = .joining(topic: topic, payload: payload, bindsChanges: bindsChanges, next: 0)
        case .window(let count):
            window = count
            answer(WorkerAnswer())
        case .talk(let order): begin(order)
        case .watch(let keys):
            presence = PresenceWatch(keys, clients: firstNumber..<firstNumber + clients.count)
            answer(WorkerAnswer())
        case .track(let count, let together, let payload): beginTracking(count, together, payload)
        case .depart(let count): beginDeparting(count)
        case .expect(let first, let count, let owner, let stride): expect(first, count, owner, stride)
        case .sign(let signature):
            self.signature = signature
            answer(WorkerAnswer())
        case .await(let milliseconds, let each):
            tally.await(each, of: clients)
            task = .awaiting(deadline: begun + UInt64(milliseconds) * 1_000_000)
        case .report: answer(report.answer)
        case .sample:
            var sample = WorkerAnswer()
            sample.texts["sample"] = String(decoding: tally.sample, as: UTF8.self)
            answer(sample)
        case .heartbeat(let seconds):
            heartbeats.seconds = seconds
            answer(WorkerAnswer())
        case .cut: cut()
        case .back(let order): beginReturning(order)
        case .slow(let bytes, let milliseconds): beSlow(bytes, milliseconds)
        case .quit: isOver = true
        }
    }

    func answer(_ answer: WorkerAnswer) { _ = ByteStream.write(answer.line, to: output) }

    /// Ends the current task and answers with its success.
    mutating func finish(_ name: String, _ count: Int) {
        task = .idle
        var done = WorkerAnswer()
        done.numbers[name] = Int64(count)
        done.numbers["ns"] = Int64(Clock.monotonicNanoseconds() - begun)
        answer(done)
    }

    /// Ends the current task and answers with its failure.
    mutating func fail(_ message: String) {
        if case .idle = task { return }
        task = .idle
        answer(WorkerAnswer(failure: message))
    }

    /// Continues the current task, ends it when it is complete, and sends heartbeats.
    private mutating func goOn() {
        switch task {
        case .idle: break
        case .connecting(let server, let path, let next, let end): connectMore(server, path, next, end)
        case .joining(let topic, let payload, let bindsChanges, let next):
            joinMore(topic, payload, bindsChanges, next)
        case .awaiting(let deadline):
            if tally.isSatisfied || Clock.monotonicNanoseconds() >= deadline {
                task = .idle
                answer(report.answer)
            }
        case .talking: talkOn()
        case .tracking(let task): goOn(task)
        case .returning(let order): returnMore(order)
        }
        beat()
    }

    private mutating func beat() {
        for index in heartbeats.due(clients: clients.count) where clients[index].isOpen {
            send(index, text: "[null,\"h\",\"phoenix\",\"heartbeat\",{}]")
        }
    }
}

/// Schedule of the clients' heartbeats. Every client sends one within `seconds`, at equal intervals.
struct Heartbeats {
    private static let ticksPerSecond = 10

    var seconds = 25
    private var position = 0
    private var nextTick: UInt64 = 0

    func next(clients: Int) -> UInt64? { clients == 0 || seconds == 0 ? nil : nextTick }

    mutating func due(clients: Int) -> Range<Int> {
        let now = Clock.monotonicNanoseconds()
        guard clients > 0, seconds > 0, now >= nextTick else { return 0..<0 }
        nextTick = now + UInt64(1_000_000_000 / Self.ticksPerSecond)
        let share = (clients + seconds * Self.ticksPerSecond - 1) / (seconds * Self.ticksPerSecond)
        if position >= clients { position = 0 }
        let due = position..<min(position + share, clients)
        position = due.upperBound
        return due
    }
}
