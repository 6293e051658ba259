import Bytes
import Diagnostics
import Gateway
import System
import WebSocket

/// Request of an operator to disconnect the clients of a user, of a login or of one socket, and to block them for a
/// time.
///
///     {"user": "7f3c…", "seconds": 3600, "because": "ticket 17"}
public struct OperatorKick: Sendable, Equatable {
    struct Refusal: Error {
        let reason: String
    }

    public let target: CutOffTarget
    /// Duration of the block in seconds; zero if the clients may reconnect immediately.
    public let seconds: Int64
    public let reason: String

    /// Maximum duration of a block.
    public static let longestBlock = Blocklist.longestBlock
    static let longestName = 1024
    static let longestReason = 512

    init(_ body: [UInt8]) throws(Refusal) {
        guard
            let members = (try? JSONValue.parse(body, maximumDepth: 2))?
                .object
        else {
            throw Refusal(reason: "the body is no JSON object")
        }
        let known = ["user", "login", "session", "seconds", "because"]
        if let other = members.members.first(where: { !known.contains($0.name) }) {
            throw Refusal(reason: "\(String(other.name.prefix(40))) is nothing that a kick has")
        }
        target = try Self.target { members[$0].map { $0.string ?? "" } }
        let most = Blocklist.longestBlock.wholeSeconds
        guard let seconds = members["seconds"].map(\.integer) ?? 0, (0...Int(most)).contains(seconds) else {
            throw Refusal(reason: "seconds is a number from 0 (not blocked) to \(most)")
        }
        guard let reason = members["because"].map(\.string) ?? "", reason.utf8.count <= Self.longestReason else {
            throw Refusal(reason: "because is a text of at most \(Self.longestReason) bytes")
        }
        self.seconds = Int64(seconds)
        self.reason = reason
    }

    /// Returns the target of a request. `value` returns the text of a member: `user`, `login` or `session`.
    static func target(_ value: (String) -> String?) throws(Refusal) -> CutOffTarget {
        let given = ["user", "login", "session"].compactMap { name in value(name).map { (name, $0) } }
        guard given.count == 1, let (kind, name) = given.first else {
            throw Refusal(reason: "one of user, login and session is given")
        }
        guard !name.isEmpty, name.utf8.count <= longestName, !name.utf8.contains(0) else {
            throw Refusal(reason: "\(kind) is a text of 1 to \(longestName) bytes")
        }
        switch kind {
        case "user": return .user(name)
        case "login": return .login(name)
        default:
            guard let number = UInt64(name.prefix { $0 != "/" }, radix: 16), number != 0 else {
                throw Refusal(reason: "session is 16 hexadecimal digits, as the ledger's")
            }
            return .socket(number)
        }
    }

    /// Description of the request for the audit file.
    var audited: String {
        "\(target.kind) \(target.name)" + (seconds > 0 ? ", blocked for \(seconds) s" : "")
    }
}

extension RunningProject {
    /// Maximum time to wait until all loops have disconnected the clients.
    private static let kickPatience = Duration.seconds(5)

    /// Disconnects the clients that the request names. If the request has a duration, blocks them first.
    func carryOut(_ kick: OperatorKick, by operator: String) -> HTTPResponse {
        let now = Clock.unixMicroseconds() / 1_000_000
        let until = kick.seconds > 0 ? now + kick.seconds : nil
        var tally = CutOff.Tally()
        do throws(Blocklist.Failure) {
            if case .socket = kick.target {
                tally = CutOff.carryOut(kick.target, isBlocked: until != nil, in: project, waiting: Self.kickPatience)
                // A socket that reconnects has another number, so the block is for its login.
                if let until {
                    guard !tally.logins.isEmpty else { return Self.withoutLogin(tally) }
                    for login in tally.logins.sorted() {
                        try block(.login(login), until, kick, `operator`, at: now)
                        _ = CutOff.carryOut(
                            .login(login), isBlocked: true, in: project, waiting: Self.kickPatience)
                    }
                }
            } else {
                if let until { try block(kick.target, until, kick, `operator`, at: now) }
                tally = CutOff.carryOut(kick.target, isBlocked: until != nil, in: project, waiting: Self.kickPatience)
            }
        } catch {
            switch error {
            case .full:
                return .message(
                    .conflict,
                    "nobody was blocked, because \(Blocklist.maximumBlocks) are blocked already: end some of their blocks"
                )
            case .unwritten:
                return .message(
                    .serviceUnavailable,
                    "the block is in effect, but a restart of the hub would end it, because it cannot be stored")
            }
        }
        Log.shared.info(
            "an operator cut clients off", [.count(UInt64(tally.sockets)), .reason(kick.reason)])
        let answer = JSONObject([
            ("sockets", .number(tally.sockets)), ("channels", .number(tally.channels)),
            ("loops_without_answer", .number(tally.loopsMissing)),
            ("until", until.map { .string(TimeText.write($0) + "Z") } ?? .null),
        ])
        return .json(.ok, JSONValue.object(JSONObject([("data", .object(answer))])).bytes)
    }

    private func block(
        _ target: CutOffTarget, _ until: Int64, _ kick: OperatorKick, _ operator: String, at now: Int64
    ) throws(Blocklist.Failure) {
        try project.blocklist.add(Blocklist.Block(target, until: until, by: `operator`, reason: kick.reason), at: now)
    }

    /// Returns the answer if a block of one socket's login was not possible, because no socket or no login was found.
    private static func withoutLogin(_ tally: CutOff.Tally) -> HTTPResponse {
        tally.sockets == 0
            ? .message(.notFound, "no socket has that number now")
            : .message(
                .conflict,
                "the session was ended, and not blocked, because its token has no session_id: block its user")
    }

    /// HTTP answer with the blocks that have not ended.
    var blocks: HTTPResponse {
        let blocks = project.blocklist.current(at: Clock.unixMicroseconds() / 1_000_000)
        let listed = blocks.map { block in
            JSONValue.object(
                JSONObject([
                    ("kind", .string(block.target.kind)), ("name", .string(block.target.name)),
                    ("until", .string(TimeText.write(block.until) + "Z")), ("operator", .string(block.by)),
                    ("reason", block.reason.isEmpty ? .null : .string(block.reason)),
                ]))
        }
        return .json(.ok, JSONValue.object(JSONObject([("data", .array(listed))])).bytes)
    }

    /// Ends the block of a user or login, and returns the answer.
    func unblock(_ target: CutOffTarget) -> HTTPResponse {
        do throws(Blocklist.Failure) {
            let isEnded = try project.blocklist.remove(target, at: Clock.unixMicroseconds() / 1_000_000)
            return isEnded ? TenantsAPI.done : .message(.notFound, "\(target.kind) \(target.name) is not blocked")
        } catch {
            return .message(
                .serviceUnavailable,
                "the block has ended, but a restart of the hub would bring it back, because that cannot be stored")
        }
    }
}
