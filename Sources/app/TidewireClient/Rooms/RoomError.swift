import Foundation

/// Reason why the client could not send a message to a room, or could not join the room.
public enum RoomError: Error, Sendable, Hashable {
    /// The room was not joined, so the client did not send the message.
    case notJoined
    /// The message waited as long as `.queue(atMost:)` allows, but the room was not joined. The client did not send it.
    case expired
    /// Too many messages of this room already wait for the join or for an answer. The client did not send this one.
    case tooManyWaiting
    /// The server closed the channel because the client sent too many messages. The client joins again automatically.
    case rateLimited(TidewireProblem)
    /// The server refused the message because it is too large.
    case tooLarge(TidewireProblem)
    /// The server refused the message or the join, for example because the user may not write to the room.
    case refused(TidewireProblem)
    /// The server did not confirm the message: the connection ended, or no answer arrived. The server may have received
    /// it.
    case unconfirmed(TidewireProblem)
    /// The app has left the room.
    case left
    /// Another room object of the same client has joined the same topic.
    case replaced
    /// No user is signed in, or the user has been signed out.
    case signedOut
}

extension RoomError: CustomStringConvertible, LocalizedError {
    /// The same text as `description`.
    public var errorDescription: String? { description }

    /// The reason, and what the app can do about it.
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
    /// Codes with which the server closes a channel because of a rate limit.
    static let rateCodes: Set = ["TooManyMessages", "TooManyPresenceMessages"]

    /// Codes after which the server will not admit the user to the room again.
    static let finalCodes: Set = ["Unauthorized", "RightsLost", "PrivateOnly", "TopicNameRequired", "unmatched"]

    /// Converts the server's answer to a message.
    ///
    /// - Parameters:
    ///   - rate: problem with which the server closed the channel because of a rate limit; nil if it did not.
    ///   - drop: problem with which the server reported, after the message was sent, that it dropped a message; nil if
    ///     none.
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
