/// Question which rights a client has in a private channel. The policies of `realtime.messages` decide.
public struct ChannelQuestion: Sendable, Hashable {
    public enum Probe: Sendable, Hashable {
        /// Right to receive. Asked when a client joins a channel or changes its token. `presence` is true if the
        /// channel has presence enabled, so that the right to presence is asked too.
        case read(presence: Bool)
        /// Right to send. Asked when a client sends for the first time. It covers both broadcast and presence.
        case write
    }

    /// Topic without the prefix `realtime:`.
    var topic: [UInt8]
    /// Role of the client: its token's claim `role`.
    var role: String
    /// Subject of the token: its claim `sub`; empty if absent.
    var subject: String
    /// All claims of the token, as JSON text.
    var claims: String
    /// HTTP request headers that policies may read, as the text of a JSON object.
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
    /// Rights of the client. `presence` is nil if the question did not ask about presence.
    case rights(broadcast: Bool, presence: Bool?)
    /// The rights could not be determined, which never counts as permission.
    case failed(ChannelAuthorizationError)

    /// True if the answer covers exactly the rights that the probe asks about.
    func answers(_ probe: ChannelQuestion.Probe) -> Bool {
        switch (self, probe) {
        case (.failed, _): true
        case (.rights(_, let presence), .read(let asksPresence)): (presence != nil) == asksPresence
        case (.rights(_, let presence), .write): presence != nil
        }
    }
}
