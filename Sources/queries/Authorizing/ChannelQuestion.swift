/// Question about a client's rights in a private channel, which the policies of `realtime.messages` decide.
public struct ChannelQuestion: Sendable, Hashable {
    public enum Probe: Sendable, Hashable {
        /// Asked when a client joins a channel or changes its token. Includes presence only if the channel has it
        /// enabled.
        case read(presence: Bool)
        /// Asked when a client sends for the first time. Always includes broadcast and presence.
        case write
    }

    /// Topic without `realtime:`.
    var topic: [UInt8]
    /// Value of the claim `role`.
    var role: String
    /// Value of the claim `sub`; empty if absent.
    var subject: String
    /// All claims as JSON text.
    var claims: String
    /// Request headers that policies may read, as the text of a JSON object.
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
    /// Rights of the client. `presence` is nil if the question did not include it.
    case rights(broadcast: Bool, presence: Bool?)
    /// The rights could not be determined, which never counts as yes.
    case failed(ChannelAuthorizationError)

    /// True if the answer covers exactly the rights that the probe asked about.
    func answers(_ probe: ChannelQuestion.Probe) -> Bool {
        switch (self, probe) {
        case (.failed, _): true
        case (.rights(_, let presence), .read(let asksPresence)): (presence != nil) == asksPresence
        case (.rights(_, let presence), .write): presence != nil
        }
    }
}
