/// Name and version of the program, for `tidewire version`, the first log line, and the name that PostgreSQL shows for
/// the hub's connections.
public enum Product {
    public static let name = "tidewire"
    public static let version = "1.0.0"

    /// Version of Swift. The language does not tell its exact version to programs; the compiler's conditions tell it
    /// closely enough.
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
