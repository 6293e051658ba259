/// What we are, said in one place: `tidewire version`, the first log line and the name PostgreSQL shows for our connections.
public enum Product {
    public static let name = "tidewire"
    public static let version = "0.1.0"
}
