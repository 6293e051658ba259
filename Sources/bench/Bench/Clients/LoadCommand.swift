import System

/// Command for the clients of a load generator, written as one line of text.
enum LoadCommand {
    /// Connects `count` clients to a path of a server. The clients are numbered from `first`.
    case connect(SocketAddress, path: ClientText, first: Int, count: Int)
    /// Joins all clients to a topic. If the payload binds changes, waits until the clients are subscribed.
    case join(topic: ClientText, payload: ClientText, bindsChanges: Bool)
    /// Makes each client expect `count` changes, numbered from `first`. If `owner` is given, the changes must carry it.
    ///
    /// With a stride greater than 1, all clients together expect `count` changes. Each client expects only the changes
    /// whose number has the same remainder, divided by the stride, as the client's own number.
    case expect(first: Int64, count: Int64, owner: ClientText?, stride: Int64)
    /// Defines `{token}` in later texts: a token with these claims, signed with the secret.
    case sign(ClientSignature)
    /// Waits until all clients have received the changes that they expect (with `each`, only the first ones of each
    /// client), or until the time has passed. Then reports.
    case await(milliseconds: Int, each: Int64?)
    /// Reports the received changes immediately.
    case report
    /// Returns the first change received since the last `expect`.
    case sample
    /// Sets the seconds between two heartbeats of a client; 0 turns heartbeats off.
    case heartbeat(seconds: Int)
    /// Sets the number of handshakes and joins that may be in progress simultaneously.
    case window(Int)
    /// Makes clients send broadcasts in the channels that they have joined.
    case talk(Talk.Order)
    /// Sets the presence keys of the clients. After this command, the generator checks each client's view of presence:
    /// the presences that it has received.
    case watch(ClientText)
    /// Makes the first clients track a presence in the channel that was joined last: all simultaneously, or one after
    /// the other. Ends when all clients have received the correct presences.
    case track(Int, isTogether: Bool, payload: ClientText)
    /// Makes the last clients leave the channel that was joined last. Ends when the remaining clients have received the
    /// correct presences.
    case depart(Int)
    /// Closes all sockets without a message. The clients continue to expect the changes of the last `expect`.
    case cut
    /// Connects all clients again, at equal intervals over a time. Each client joins as soon as it is connected. Ends
    /// when all are subscribed.
    case back(LoadReturn)
    /// Limits each client to reading `bytes` bytes every `milliseconds`. With 0, clients read all available bytes.
    case slow(bytes: Int, milliseconds: Int)
    case quit

    init?(_ line: String) {
        let words = line.split(separator: " ", maxSplits: 2).map(String.init)
        switch words.first {
        case "connect": self.init(connect: line.split(separator: " ").dropFirst().map(String.init))
        case "join" where words.count == 3:
            self = .join(
                topic: ClientText(words[1]), payload: ClientText(words[2]),
                bindsChanges: words[2].contains(#""postgres_changes":[{"#))
        case "expect": self.init(expect: line.split(separator: " ").dropFirst().map(String.init))
        case "await": self.init(await: words.dropFirst().compactMap { Int($0) }, of: words.count - 1)
        case "sign" where words.count == 3:
            self = .sign(ClientSignature(secret: Array(words[1].utf8), claims: ClientText(words[2])))
        case "report": self = .report
        case "sample": self = .sample
        case "heartbeat":
            guard words.count == 2, let seconds = Int(words[1]), seconds >= 0 else { return nil }
            self = .heartbeat(seconds: seconds)
        case "window":
            guard words.count == 2, let count = Int(words[1]), count > 0 else { return nil }
            self = .window(count)
        case "talk":
            guard let order = Talk.Order(words: line.split(separator: " ").dropFirst().map(String.init)) else {
                return nil
            }
            self = .talk(order)
        case "watch" where words.count == 2: self = .watch(ClientText(words[1]))
        case "track": self.init(track: line.split(separator: " ", maxSplits: 3).dropFirst().map(String.init))
        case "depart":
            guard words.count == 2, let count = Int(words[1]), count > 0 else { return nil }
            self = .depart(count)
        case "cut": self = .cut
        case "back":
            guard let order = LoadReturn(words: line.split(separator: " ", maxSplits: 5).dropFirst().map(String.init))
            else { return nil }
            self = .back(order)
        case "slow":
            let numbers = words.dropFirst().compactMap { Int($0) }
            guard numbers.count == 2, numbers.allSatisfy({ $0 >= 0 }), (numbers[0] == 0) == (numbers[1] == 0),
                numbers[0] <= LoadGenerator.readBytes
            else { return nil }
            self = .slow(bytes: numbers[0], milliseconds: numbers[1])
        case "quit": self = .quit
        default: return nil
        }
    }

    /// Parses PORT PATH FIRST COUNT. The server is always on this machine, so that a mistake cannot flood another one.
    private init?(connect words: [String]) {
        guard words.count == 4, let port = UInt16(words[0]), let first = Int(words[2]), let count = Int(words[3]),
            first >= 0, (0...LoadGenerator.maximumClients).contains(count), first < 1 << 32
        else { return nil }
        self = .connect(.loopback(port: port), path: ClientText(words[1]), first: first, count: count)
    }

    /// Parses COUNT one|all PAYLOAD.
    private init?(track words: [String]) {
        guard words.count == 3, let count = Int(words[0]), count >= 0, ["one", "all"].contains(words[1]) else {
            return nil
        }
        self = .track(count, isTogether: words[1] == "all", payload: ClientText(words[2]))
    }

    private init?(await numbers: [Int], of count: Int) {
        guard numbers.count == count, (1...2).contains(count), numbers.allSatisfy({ $0 >= 0 }) else { return nil }
        self = .await(milliseconds: numbers[0], each: count == 2 ? Int64(numbers[1]) : nil)
    }

    private init?(expect words: [String]) {
        guard (2...4).contains(words.count), let first = Int64(words[0]), let count = Int64(words[1]), count >= 0,
            let stride = words.count == 4 ? Int64(words[3]) : 1, stride > 0
        else { return nil }
        let owner = words.count > 2 && words[2] != "-" ? ClientText(words[2]) : nil
        self = .expect(first: first, count: count, owner: owner, stride: stride)
    }
}
