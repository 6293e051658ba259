/// Requirement of the hub, or of applications, on a database, with its present state.
public struct Requirement: Sendable, Equatable {
    public enum State: String, Sendable {
        case ok, missing, wrong
    }

    public enum Area: String, Sendable, CaseIterable {
        case settings, cluster, server, login, roles, auth, publication, realtime, upkeep, policies, tables

        public var title: String {
            switch self {
            case .settings: "Settings and this machine"
            case .cluster: "The cluster's NATS servers"
            case .server: "PostgreSQL"
            case .login: "The hub's login"
            case .roles: "Roles"
            case .auth: "What policies ask about the caller"
            case .publication: "Publication"
            case .realtime: "Schema realtime"
            case .upkeep: "What the hub does in realtime.messages"
            case .policies: "The login for policies"
            case .tables: "What subscribers may expect"
            }
        }
    }

    public let area: Area
    public let name: String
    public let state: State
    /// True if some function of the hub does not work without the requirement. Other requirements are for information.
    public let isRequired: Bool
    /// Description of the present state.
    public let detail: String
    /// Advice in words: who must act, or actions that SQL cannot express. Nil if there is none.
    public let words: String?
    /// SQL statements that fix the problem; nil if there are none. A placeholder `…` in them needs a person's decision.
    public let sql: String?

    public var isFailure: Bool { isRequired && state != .ok }

    /// Advice in words, followed by the SQL statements that fix the problem.
    public var hint: String? {
        guard let sql else { return words }
        return words.map { "\($0): \(sql)" } ?? sql
    }

    /// True if the statements in `sql` would let users see rows that are hidden now, perhaps on purpose.
    public let showsMore: Bool

    /// True if the statements in `sql` can run without a person's decision.
    public var isFixComplete: Bool { !showsMore && sql.map { !$0.contains("…") } ?? false }

    public init(
        _ area: Area, _ name: String, _ state: State, _ detail: String, isRequired: Bool, words: String?, sql: String?,
        showsMore: Bool = false
    ) {
        self.area = area
        self.name = name
        self.state = state
        self.isRequired = isRequired
        self.detail = detail
        self.words = words
        self.sql = sql
        self.showsMore = showsMore
    }

    public static func ok(
        _ area: Area, _ name: String, _ detail: String, hint: String? = nil, sql: String? = nil
    ) -> Requirement {
        Requirement(area, name, .ok, detail, isRequired: true, words: hint, sql: sql)
    }

    public static func missing(
        _ area: Area, _ name: String, _ detail: String, isRequired: Bool = true, hint: String? = nil, sql: String? = nil
    ) -> Requirement {
        Requirement(area, name, .missing, detail, isRequired: isRequired, words: hint, sql: sql)
    }

    public static func wrong(
        _ area: Area, _ name: String, _ detail: String, isRequired: Bool = true, hint: String? = nil, sql: String? = nil
    ) -> Requirement {
        Requirement(area, name, .wrong, detail, isRequired: isRequired, words: hint, sql: sql)
    }
}
