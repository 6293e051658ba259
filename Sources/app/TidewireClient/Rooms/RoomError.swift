import Foundation

/// Reason why a room could not send a message, or could not join.
public enum RoomError: Error, Sendable, Hashable {
    /// The room is not joined, and the message was not sent.
    case notJoined
    /// The message waited as long as `.queue(atMost:)` allows, and the room was not joined. The message was not sent.
    case expired
    /// Too many messages of this room wait for the join or for an answer. The message was not sent.
    case tooManyWaiting
    /// The server closed the channel because the client sent too many messages. The client joins again by itself.
    case rateLimited(TidewireProblem)
    /// The server refused the message because of its size.
    case tooLarge(TidewireProblem)
    /// The server refused the message or the join, for example because the user may not write to the room.
    case refused(TidewireProblem)
    /// The server did not confirm the message: the connection ended, or no answer came. The message may have arrived.
    case unconfirmed(TidewireProblem)
    /// The app left the room.
    case left
    /// Another room object of the same client has joined the same topic.
    case replaced
    /// No user is signed in, or the user has been signed out.
    case signedOut
}

extension RoomError: CustomStringConvertible, LocalizedError {
    /// The same text as `description`.
    public var errorDescription: String? { description }

    /// The reason, and what the app can do.
    public var description: String {
        switch self {
        case .notJoined:
            "the room is not joined, so the message was not sent: join first, or pass whenOffline: .queue(atMost:)"
        case .expired:
            "the room was not joined in time, so the message was not sent: send it again, or wait longer"
        case .tooManyWaiting:
            "too many messages of this room wait, so this one was not sent: await each send, or send fewer"
        case .rateLimited(let problem):
            "the server allows fewer messages a second (\(problem)): send fewer, or raise the project's limit"
        case .tooLarge(let problem):
            "the message is larger than the server allows (\(problem)): send less, or a reference to stored data"
        case .refused(let problem):
            "the server refused it (\(problem)): check the user's rights on the room"
        case .unconfirmed(let problem):
            "the server did not confirm the message (\(problem)): send it again if a second copy does no harm"
        case .left: "the room was left: join it again"
        case .replaced: "another room object of this client has joined the same topic: use one object for each topic"
        case .signedOut: "no user is signed in: call signIn(token:) or signInAnonymously(), then join"
        }
    }
}

extension RoomError {
    /// The server's codes for channels that it closes because of a rate limit.
    static let rateCodes: Set = ["TooManyMessages", "TooManyPresenceMessages"]

    /// Problems after which the server does not admit the user to the room again.
    static let finalCodes: Set = ["Unauthorized", "RightsLost", "PrivateOnly", "TopicNameRequired", "unmatched"]

    /// Converts the answer to a message.
    ///
    /// - Parameters:
    ///   - rate: rate limit for which the server closed the channel, if it did.
    ///   - drop: notice that the server dropped a message, if one arrived after the message was sent.
    init(_ problem: TidewireProblem, rate: TidewireProblem?, drop: TidewireProblem?) {
        switch problem.code {
        case "TooManyPushes": self = .tooManyWaiting
        case "NotJoined", "Disconnected": self = rate.map(RoomError.rateLimited) ?? .unconfirmed(problem)
        case "NoAnswer": self = drop.map(RoomError.refused) ?? .unconfirmed(problem)
        case "Left": self = .left
        case _ where problem.message.hasPrefix("payload_size_exceeded"): self = .tooLarge(problem)
        default: self = .refused(problem)
        }
    }
}
