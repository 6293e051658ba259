import Bytes
import Glibc
import Synchronization
import System

/// Unmodified clients for Python (`realtime` of PyPI), in separate processes. Each process prints what the callbacks of
/// its clients receive.
final class RealClients: Sendable {
    static let clientsPerProcess = 5

    private struct Worker: Sendable {
        var process: ChildProcess
        var output: Int32
        var clients: [Int]
    }

    private let workers: [Worker]
    private let threads = Mutex<[BackgroundThread]>([])
    private let isOver = Mutex(false)
    private let notebook: Notebook
    let count: Int

    init(python: String, clients: [OwnClient], port: UInt16, secret: String, notebook: Notebook, errors: String) throws
    {
        count = clients.count
        self.notebook = notebook
        var workers: [Worker] = []
        for start in stride(from: 0, to: clients.count, by: Self.clientsPerProcess) {
            let share = clients[start..<min(start + Self.clientsPerProcess, clients.count)]
            let orders = share.map { client in
                let token = client.token(secret: Array(secret.utf8), seconds: 86_400)
                let bindings = client.seat.bindings.map(\.request).joined(separator: ",")
                let parameters = client.clientID.map { #""client_id":"\#($0)""# } ?? ""
                return
                    #"{"number":\#(client.number),"token":"\#(token)","params":{\#(parameters)},"bindings":[\#(bindings)]}"#
            }
            let order = #"{"url":"ws://127.0.0.1:\#(port)/realtime/v1","clients":[\#(orders.joined(separator: ","))]}"#
            let (input, output) = (try Pipe(), try Pipe())
            let process = try ChildProcess(
                ["setpriv", "--pdeathsig", "KILL", "--", python, "-c", Self.script, order], output: errors,
                ends: .init(input: input.reading, output: output.writing))
            for descriptor in [input.reading, input.writing, output.writing] { ByteStream.close(descriptor) }
            workers.append(Worker(process: process, output: output.reading, clients: share.map(\.number)))
        }
        self.workers = workers
        for worker in workers {
            let thread = try BackgroundThread("real clients") { [self] in listen(to: worker, notebook) }
            threads.withLock { $0.append(thread) }
        }
    }

    private func listen(to worker: Worker, _ notebook: Notebook) {
        var lines = LineReader(worker.output)
        while !lines.isAtEnd {
            lines.fill()
            while let line = lines.next() { take(line, notebook) }
        }
        if !isOver.withLock({ $0 }) {
            notebook.add(trouble: .stuck, "a process of real clients ended", at: Clock.monotonicNanoseconds())
        }
    }

    /// Parses a line that a process of clients printed, and adds it to the notebook. The line has a client's number, an
    /// event, and a number or text.
    private func take(_ line: String, _ notebook: Notebook) {
        let now = Clock.monotonicNanoseconds()
        let words = line.split(separator: " ", maxSplits: 2).map(String.init)
        guard words.count == 3, let client = Int(words[0]) else {
            return notebook.add(trouble: .wrongValue, "real clients say: \(line.prefix(200))", at: now)
        }
        if let operation = ChangeMark.Operation(rawValue: words[1]), let number = Int64(words[2]) {
            return notebook.add(client, now, .heard(ChangeMark(operation: operation, number: number)))
        }
        switch words[1] {
        case "began": notebook.add(client, now, .began(.joined))
        case "interrupted": notebook.add(client, now, .interrupted)
        case "told": notebook.add(client, now, .told(words[2]))
        default: notebook.add(client, now, .garbled(line))
        }
    }

    /// Stops each process of clients (SIGSTOP) with the probability 1/`oneIn`. Its clients note a pause.
    func stop(oneIn: Int, seed: UInt64) {
        var chance = VerifyChance(seed, lane: 11)
        for worker in workers where chance.once(in: oneIn) {
            let now = Clock.monotonicNanoseconds()
            for client in worker.clients { notebook.add(client, now, .stands) }
            worker.process.signal(SIGSTOP)
        }
    }

    /// Continues the stopped processes of clients (SIGCONT).
    func goOn() { for worker in workers { worker.process.signal(SIGCONT) } }

    func close() {
        isOver.withLock { $0 = true }
        for worker in workers { worker.process.signal(SIGKILL) }
        threads.withLock { threads in
            for thread in threads { thread.join() }
            threads = []
        }
        for worker in workers { ByteStream.close(worker.output) }
    }

    private static let script = """
        import asyncio, json, logging, sys, time
        from realtime import AsyncRealtimeClient

        order = json.loads(sys.argv[1])

        # What the client's library does with its connection and its joins, without the messages that it receives.
        logging.basicConfig(format="%(asctime)s.%(msecs)03d %(funcName)s: %(message).200s", datefmt="%H:%M:%S", stream=sys.stderr)
        logging.getLogger("realtime").setLevel(logging.DEBUG)
        logging.root.handlers[0].addFilter(lambda record: record.funcName not in ("_listen", "_handle_message", "send"))

        def say(*words):
            print(*words, flush=True)

        def change(number):
            def heard(payload):
                data = payload["data"]
                kind = getattr(data["type"], "value", data["type"])
                if kind == "DELETE":
                    return say(number, kind, data["old_record"]["id"])
                record = data["record"]
                if record["note"] != "v%d" % record["v"]:
                    return say(number, "garbled", json.dumps(record))
                say(number, kind, record["v"])
            return heard

        def system(number):
            def heard(payload):
                message = dict(payload)["message"]
                if "missing" in message:
                    say(number, "told", message)
            return heard

        def state(number):
            def heard(value, error):
                if value.value == "SUBSCRIBED":
                    say(number, "began", "-")
                elif "missing" in str(error):
                    say(number, "told", " ".join(str(error).split()))
                else:
                    say(number, "interrupted", "-")
                    print(time.monotonic(), number, value.value, repr(error), file=sys.stderr, flush=True)
            return heard

        async def main():
            clients = []
            for one in order["clients"]:
                client = AsyncRealtimeClient(order["url"], one["token"], params=one["params"],
                    max_retries=1000, initial_backoff=0.2)
                await client.connect()
                channel = client.channel("r%d" % one["number"])
                channel.on_system(system(one["number"]))
                for binding in one["bindings"]:
                    channel.on_postgres_changes("*", change(one["number"]), table=binding["table"], schema="public",
                        filter=binding.get("filter"))
                await channel.subscribe(state(one["number"]))
                clients.append(client)
            await asyncio.Event().wait()

        asyncio.run(main())
        """
}
