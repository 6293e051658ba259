import System

/// What clients are told to do, one line each.
enum LoadCommand {
    /// So many clients, numbered from `first`, connect to a path of a server.
    case connect(SocketAddress, path: ClientText, first: Int, count: Int)
    /// All clients join a topic and, if the payload binds changes, wait until they are subscribed.
    case join(topic: ClientText, payload: ClientText, bindsChanges: Bool)
    /// All clients are to receive changes numbered from `first`, so many each, which carry this `owner` if one is given. With
    /// a stride, so many come in all, and of that many in a row one is for a client: the one whose rest by it is the
    /// client's number's.
    case expect(first: Int64, count: Int64, owner: ClientText?, stride: Int64)
    /// From here on `{token}` stands for a token with these claims, signed with the secret.
    case sign(ClientSignature)
    /// Waits until all have what they expect, or the first so many changes of it, then reports; or until the time is up.
    case await(milliseconds: Int, each: Int64?)
    case report
    /// The first change that came since it was said what to expect.
    case sample
    /// Between two heartbeats of a client; 0 is never.
    case heartbeat(seconds: Int)
    /// So many handshakes and joins may be under way at the same time.
    case window(Int)
    /// Clients talk in the channels they have joined.
    case talk(Talk.Order)
    /// What the presence keys of clients are: from here on their views are looked at.
    case watch(ClientText)
    /// The first so many track a presence in the channel joined last, one by one or all together; done when all views are
    /// equal and right.
    case track(Int, isTogether: Bool, payload: ClientText)
    /// The last so many leave that channel; done when the others' views are.
    case depart(Int)
    /// All sockets are closed without a word. What was expected still is.
    case cut
    /// All connect again, evenly over that time, and each joins as soon as it has; done when all are subscribed.
    case back(LoadReturn)
    /// From here on each client reads so many bytes in so many milliseconds; all there is with 0.
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

    /// PORT PATH FIRST COUNT. Always this machine: nobody else is to be flooded by a slip of the hand.
    private init?(connect words: [String]) {
        guard words.count == 4, let port = UInt16(words[0]), let first = Int(words[2]), let count = Int(words[3]),
            first >= 0, (0...LoadGenerator.maximumClients).contains(count), first < 1 << 32
        else { return nil }
        self = .connect(.loopback(port: port), path: ClientText(words[1]), first: first, count: count)
    }

    /// COUNT one|all PAYLOAD
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
