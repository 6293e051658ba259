/// Who answers clients that ask for a host name which is no project's.
public enum UnknownHosts: String, Sendable, CaseIterable {
    /// The only project there is; of several, none.
    case single
    /// The settings' own project, whatever others there are.
    case main
    /// Nobody, also where there is one project.
    case refuse
}
