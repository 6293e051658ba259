/// Name and version of the program, for `tidewire version`, the first log line, and the name of the hub's connections
/// in PostgreSQL.
public enum Product {
    public static let name = "tidewire"
    public static let version = "1.0.0"

    /// Version of the Swift compiler. Programs cannot read the exact version, so it is derived from compiler
    /// conditions.
    public static var swift: String {
        #if compiler(>=6.4)
            "6.4 or later"
        #elseif compiler(>=6.3)
            "6.3"
        #else
            "6.2"
        #endif
    }
}
