/// What somebody may do in a private channel, as the policies of `realtime.messages` say.
public struct ChannelQuestion: Sendable, Hashable {
    public enum Probe: Sendable, Hashable {
        /// Asked when a channel is joined or its token changes; presence only where it is on.
        case read(presence: Bool)
        /// Asked when something is sent for the first time; always of both.
        case write
    }

    /// Without `realtime:`.
    var topic: [UInt8]
    /// The claim `role`.
    var role: String
    /// The claim `sub`; empty when there is none.
    var subject: String
    /// All claims as JSON text.
    var claims: String
    /// The request's headers that policies may look at, as the text of a JSON object.
    var headers: String
    var probe: Probe

    public init(topic: [UInt8], role: String, subject: String, claims: String, headers: String, probe: Probe) {
        self.topic = topic
        self.role = role
        self.subject = subject
        self.claims = claims
        self.headers = headers
        self.probe = probe
    }

    var byteCount: Int {
        topic.count + role.utf8.count + subject.utf8.count + claims.utf8.count + headers.utf8.count
    }
}

public enum ChannelAnswer: Sendable, Equatable {
    /// Presence is nil where it was not asked for.
    case rights(broadcast: Bool, presence: Bool?)
    /// It could not be found out, which is never yes.
    case failed(ChannelAuthorizationError)

    /// Whether it says as much as was asked, and no more.
    func answers(_ probe: ChannelQuestion.Probe) -> Bool {
        switch (self, probe) {
        case (.failed, _): true
        case (.rights(_, let presence), .read(let asksPresence)): (presence != nil) == asksPresence
        case (.rights(_, let presence), .write): presence != nil
        }
    }
}
